#include "collectives/training/methods/communicator_method.h"

namespace dunlin::training {
Status CommunicatorMethod::prepare() {
  collective::CommunicatorOptions options;
  options.name = this->options().name;
  DUNLIN_ASSIGN(communicator_, collective::Communicator::prepare(fabric(), options));
  return Status::ok();
}

Status CommunicatorMethod::connect() {
  DUNLIN_TRY(communicator_->connect());
  DUNLIN_ASSIGN(shared_, SharedVector::allocate(*communicator_, options().count));
  return Status::ok();
}

Status CommunicatorMethod::start_average(ModelRange range) {
  DUNLIN_ASSIGN(const auto request,
                shared_.start_average(*communicator_, range, options().algorithm));
  requests_.push_back(request);
  const auto others = static_cast<std::size_t>(communicator_->size()) - 1;
  costs().bytes_sent += 2 * range.count * sizeof(float) * others / (others + 1);
  return Status::ok();
}

Status CommunicatorMethod::test_averages() {
  if (completed_ == requests_.size()) communicator_->progress();
  while (completed_ < requests_.size()) {
    DUNLIN_TRY(communicator_->test(requests_[completed_]));
    ++completed_;
  }
  return Status::ok();
}

void CommunicatorMethod::forget_averages() {
  requests_.clear();
  completed_ = 0;
}

Status CommunicatorMethod::test_barrier() {
  if (!is_barrier_started_) {
    DUNLIN_ASSIGN(barrier_,
                  communicator_->start({collective::Collective::kBarrier, nullptr, nullptr, 0}));
    is_barrier_started_ = true;
  }
  return communicator_->test(barrier_);
}

std::vector<transport::Awaited> CommunicatorMethod::awaited() const {
  return communicator_->awaited();
}

}  // namespace dunlin::training
