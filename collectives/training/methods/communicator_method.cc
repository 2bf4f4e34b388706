#include "collectives/training/methods/communicator_method.h"

namespace dunlin::training {

Status CommunicatorMethod::prepare() {
  DUNLIN_ASSIGN(compute_, ModelCompute::create(fabric(), this->options()));
  collective::CommunicatorOptions options;
  options.name = this->options().name;
  options.members = this->options().members;
  options.gpu = this->options().gpu;
  DUNLIN_ASSIGN(communicator_, collective::Communicator::prepare(fabric(), options));
  if (!options.gpu) return Status::ok();
  options.name += "/flags";
  options.gpu.reset();
  DUNLIN_ASSIGN(flags_, collective::Communicator::prepare(fabric(), options));
  return Status::ok();
}

Status CommunicatorMethod::connect() {
  DUNLIN_TRY(communicator_->connect());
  if (flags_) DUNLIN_TRY(flags_->connect());
  DUNLIN_ASSIGN(shared_, SharedVector::allocate(*communicator_, flags_.get(), options().count));
  return Status::ok();
}

Status CommunicatorMethod::start_average(ModelRange range) {
  DUNLIN_ASSIGN(const auto request,
                shared_.start_average(*communicator_, range, options().algorithm));
  requests_.push_back(request);
  if (flags_ && range.first == 0) {
    DUNLIN_ASSIGN(flag_request_, shared_.start_flag(*flags_));
  }
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
  if (flag_request_) DUNLIN_TRY(flags_->test(*flag_request_));
  flag_request_.reset();
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

Rank CommunicatorMethod::blocker() const {
  const Rank peer = communicator_->blocker();
  return peer == Rank() && flags_ ? flags_->blocker() : peer;
}

std::vector<transport::Awaited> CommunicatorMethod::awaited() const {
  auto awaited = communicator_->awaited();
  return awaited.empty() && flags_ ? flags_->awaited() : awaited;
}

}  // namespace dunlin::training
