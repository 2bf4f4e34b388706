#include "collectives/groups/group_average.h"

#include <dunlin/group_average.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bindings/cpp/internal.h"

namespace dunlin {
namespace {

collective::GroupSource internal(GroupSource source) {
  switch (source) {
    case GroupSource::kStatic:
      return collective::GroupSource::kStatic;
    case GroupSource::kRandom:
      return collective::GroupSource::kRandom;
    case GroupSource::kBuffered:
      return collective::GroupSource::kBuffered;
    case GroupSource::kSmart:
      break;
  }
  return collective::GroupSource::kSmart;
}

Result<collective::WorkerLayout> layout_of(int size, int ranks_per_host) {
  if (ranks_per_host == 0) return collective::WorkerLayout{size, 1};
  if (ranks_per_host < 0 || size % ranks_per_host != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} ranks can't stand on hosts of {}", size, ranks_per_host));
  }
  return collective::WorkerLayout{size / ranks_per_host, ranks_per_host};
}

}  // namespace

struct GroupAverage::Impl {
  std::shared_ptr<JobState> job;
  std::unique_ptr<collective::GroupAverage> average;
};

GroupAverage::GroupAverage(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GroupAverage::GroupAverage(GroupAverage&&) noexcept = default;
GroupAverage& GroupAverage::operator=(GroupAverage&&) noexcept = default;
GroupAverage::~GroupAverage() = default;

Result<GroupAverage> GroupAverage::create(Job& job, const GroupAverageOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  collective::GroupAverageOptions wanted;
  wanted.name = options.name;
  wanted.count = options.count;
  wanted.source = internal(options.source);
  DUNLIN_ASSIGN(wanted.groups.layout, layout_of(job.size(), options.ranks_per_host));
  wanted.members = options.members.ranks;
  const int ranks = wanted.members.empty() ? job.size() : static_cast<int>(wanted.members.size());
  wanted.groups.group_size = std::min(options.group_size, std::max(ranks, 2));
  wanted.groups.slowdown_threshold = options.slowdown_threshold;
  wanted.groups.seed = options.seed;
  wanted.partial.gpu = options.gpu;
  DUNLIN_ASSIGN(impl->average,
                collective::GroupAverage::create(*impl->job->fabric, std::move(wanted)));
  return GroupAverage(std::move(impl));
}

std::span<float> GroupAverage::model() {
  return impl_->average->model();
}

Status GroupAverage::run(std::uint64_t iteration) {
  return impl_->average->run(iteration);
}

Status GroupAverage::finish(Duration timeout) {
  return impl_->average->finish(timeout);
}

Status GroupAverage::start(std::uint64_t iteration) {
  return impl_->average->start(iteration);
}

Status GroupAverage::leave() {
  return impl_->average->leave();
}

Status GroupAverage::test() {
  return impl_->average->test();
}

Status GroupAverage::wait(Duration timeout) {
  return impl_->average->wait(timeout);
}

void GroupAverage::progress() {
  impl_->average->progress();
}

GroupAverageStatistics GroupAverage::statistics() const {
  const collective::GroupAverageStatistics all = impl_->average->statistics();
  return {all.iterations, all.groups, all.members, all.alone, all.failures, all.waited};
}

}  // namespace dunlin
