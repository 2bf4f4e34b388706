#include "collectives/groups/group_average.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/kernels/element_limit.h"
#include "collectives/partial/wire.h"
#include "runtime/within.h"

namespace dunlin::collective {

using transport::Awaited;

namespace {

// Whether a failed reduce may be due to the death of a rank, or was aborted by another member. If a
// member knew of a death, skipped the group and has gone on, the error is kInvalidArgument.
bool is_due_to_others(Code code) {
  switch (code) {
    case Code::kPeerDead:
    case Code::kDeadlineExceeded:
    case Code::kPeerStalled:
    case Code::kInvalidArgument:
    // Errors of connections to a rank that is dying, before the peer table knows.
    case Code::kUnavailable:
    case Code::kClosed:
    case Code::kNotFound:
    case Code::kIoError:
      return true;
    default:
      return false;
  }
}

GroupPolicy policy_of(GroupSource source) {
  switch (source) {
    case GroupSource::kRandom:
      return GroupPolicy::kRandom;
    case GroupSource::kBuffered:
      return GroupPolicy::kBuffered;
    default:
      return GroupPolicy::kSmart;
  }
}

}  // namespace

const char* to_string(GroupSource source) {
  return source == GroupSource::kStatic ? "static" : to_string(policy_of(source));
}

Result<GroupSource> parse_group_source(std::string_view name) {
  for (const GroupSource source : kGroupSources) {
    if (name == to_string(source)) return source;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("no groups '{}': static, random, buffered, smart", name));
}

GroupAverage::GroupAverage(transport::Fabric& fabric, GroupAverageOptions options)
    : fabric_(fabric), options_(std::move(options)) {}

Result<std::unique_ptr<GroupAverage>> GroupAverage::create(transport::Fabric& fabric,
                                                           GroupAverageOptions options) {
  if (options.count > kMostElements) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': a model of {} elements, at most {} are possible", options.name,
                              options.count, kMostElements));
  }
  const bool is_static = options.source == GroupSource::kStatic;
  options.groups.policy = policy_of(options.source);
  options.partial.name = options.name;
  const WorkerLayout& layout = options.groups.layout;
  DUNLIN_TRY(check(layout));
  if (layout.workers() != fabric.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': a layout of {} workers in a job of {}", options.name,
                              layout.workers(), fabric.size()));
  }
  if (is_static && !options.members.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': a static schedule takes all ranks of the job", options.name));
  }
  std::unique_ptr<GroupAverage> made(new GroupAverage(fabric, std::move(options)));
  DUNLIN_ASSIGN(made->partial_, PartialAllReduce::create(fabric, made->options_.partial));
  DUNLIN_TRY(made->allocate());
  if (is_static) {
    DUNLIN_ASSIGN(made->schedule_, StaticSchedule::make(made->options_.groups.layout));
    made->start_task();
    return made;
  }
  GroupServiceOptions service;
  service.name = made->options_.name;
  service.groups = made->options_.groups;
  service.members = made->options_.members;
  service.agreed = made->options_.count;
  DUNLIN_ASSIGN(made->service_, GroupService::create(fabric, service));
  made->start_task();
  return made;
}

Status GroupAverage::allocate() {
  const std::size_t bytes = options_.count * sizeof(float);
  DUNLIN_ASSIGN(const Memory model, partial_->allocate(bytes));
  DUNLIN_ASSIGN(result_, partial_->allocate(bytes));
  model_ = model;
  return Status::ok();
}

std::span<float> GroupAverage::model() {
  return {data(model_), options_.count};
}

Status GroupAverage::check_start(std::uint64_t iteration) const {
  DUNLIN_TRY(error_);
  if (state_ != State::kComputing || (iteration_ && iteration <= *iteration_)) {
    return {Code::kInvalidArgument,
            fmt::format("'{}': starts the average of iteration {} {}", options_.name, iteration,
                        state_ == State::kLeaving     ? "after it has left"
                        : state_ == State::kAveraging ? "before the last has ended"
                                                      : "after that of a later one")};
  }
  if (!service_ &&
      iteration >= partial::kLastNumber / static_cast<std::uint64_t>(fabric_.size()) - 1) {
    return {Code::kInvalidArgument,
            fmt::format("'{}': iteration {} is beyond the last that can be averaged", options_.name,
                        iteration)};
  }
  return Status::ok();
}

Status GroupAverage::start(std::uint64_t iteration) {
  DUNLIN_TRY(check_start(iteration));
  if (service_) DUNLIN_TRY(service_->ask(iteration));
  iteration_ = iteration;
  started_ = fabric_.clock().now();
  state_ = State::kAveraging;
  return Status::ok();
}

Status GroupAverage::leave() {
  DUNLIN_TRY(error_);
  if (state_ == State::kAveraging) {
    return {Code::kInvalidArgument,
            fmt::format("'{}': leaves before the last average has ended", options_.name)};
  }
  if (service_) DUNLIN_TRY(service_->leave());
  state_ = State::kLeaving;
  return Status::ok();
}

void GroupAverage::progress() {
  const Within inside(is_inside_);
  partial_->progress();
  if (service_ && !error_.is_error()) {
    if (Status status = service_->progress(); status.is_error()) error_ = std::move(status);
  }
}

Status GroupAverage::test() {
  progress();
  Status status = error_;
  if (!error_.is_error()) {
    if (state_ == State::kComputing)
      return {Code::kNotFound, fmt::format("'{}': no average is in progress", options_.name)};
    status = step();
    if (status.is_error()) error_ = status;
  }
  if (!error_.is_error() || !request_) return status;
  // The model is the caller's again: no reduce may go on with it.
  const Within inside(is_inside_);
  const Status outcome = partial_->wait(*request_, Duration::zero());
  request_.reset();
  if (outcome.is_ok()) {
    std::swap(model_, result_);
  } else {
    (void)move_model();  // the first error counts
  }
  return status;
}

Status GroupAverage::step() {
  if (state_ == State::kLeaving)
    return !service_ || service_->is_over() ? Status::ok() : Status::busy();
  if (!std::exchange(is_averaged_, false)) {
    const Within inside(is_inside_);
    DUNLIN_TRY(average());
  }
  state_ = State::kComputing;
  ++statistics_.iterations;
  statistics_.waited += fabric_.clock().now() - started_;
  return Status::ok();
}

// After an error, and when its group is broken, the model moves, which asks the bootstrap.
void GroupAverage::serve_peers() {
  const bool is_due = state_ == State::kAveraging && !is_averaged_ && !failure_ &&
                      (!service_ || service_->is_up_to_date());
  const Within inside(is_inside_);
  if (!is_due || error_.is_error() || inside.was_within()) return;
  Status status = Status::busy();
  if (!request_) {
    status = average();
  } else if (Status outcome = partial_->test(*request_); outcome.is_ok()) {
    status = end_reduce(std::move(outcome));
  } else if (outcome.is_error()) {
    failure_ = std::move(outcome);
  }
  is_averaged_ = status.is_ok();
  if (status.is_error()) error_ = std::move(status);
}

Status GroupAverage::average() {
  if (failure_) return end_reduce(*std::exchange(failure_, std::nullopt));
  if (request_) {
    Status outcome = partial_->test(*request_);
    if (!outcome.is_busy()) return end_reduce(std::move(outcome));
    // While this rank is in a group, the only news of the group is that it is broken.
    if (!service_ || !service_->poll()) return Status::busy();
    outcome = partial_->wait(*request_, Duration::zero());
    request_.reset();
    group_.reset();
    if (outcome.is_ok()) {  // in the last moment; the others may have it, too
      std::swap(model_, result_);
      return Status::busy();
    }
    ++statistics_.failures;
    DUNLIN_TRY(move_model());
    return Status::busy();
  }
  if (!service_) return join(schedule_->group_of(*iteration_, fabric_.rank()));
  const std::optional<GroupNotice> notice = service_->poll();
  // A broken notice ends a group that failed here.
  if (!notice || notice->kind == GroupNotice::Kind::kBroken) return Status::busy();
  return join(notice->group);
}

Status GroupAverage::join(const Group& group) {
  if (group.is_alone()) {
    ++statistics_.alone;
    failures_in_a_row_ = 0;
    if (!service_) return Status::ok();
    DUNLIN_TRY(service_->done(group.sequence));
    return service_->is_computing() ? Status::ok() : Status::busy();
  }
  group_ = group;
  // A reduce with a dead member would fail anyway, and cost memory. It does not count as one of
  // many failures in a row: the master may hear of the death long after this rank, and forms groups
  // with the dead member until then.
  if (service_) {
    for (const Rank member : group.ranks) {
      if (fabric_.peers().check(member).is_error()) return give_up_group();
    }
  }
  return begin_reduce(*group_);
}

Status GroupAverage::begin_reduce(const Group& group) {
  PartialCall call;
  call.number = group.sequence;
  call.members = group.ranks;
  call.input = model_.data();
  call.output = result_.data();
  call.count = options_.count;
  DUNLIN_ASSIGN(request_, partial_->start(call));
  return Status::busy();
}

Status GroupAverage::end_reduce(Status outcome) {
  request_.reset();
  if (outcome.is_error()) {
    Status moved = move_model();
    if (!service_ || !is_due_to_others(outcome.code())) return outcome;
    DUNLIN_TRY(std::move(moved));
    return fail(std::move(outcome));
  }
  std::swap(model_, result_);
  ++statistics_.groups;
  const auto members = static_cast<double>(group_->ranks.size());
  statistics_.members += group_->ranks.size();
  statistics_.models_sent += 2 * (members - 1) / members;
  failures_in_a_row_ = 0;
  const std::uint64_t number = group_->sequence;
  group_.reset();
  if (!service_) return Status::ok();
  DUNLIN_TRY(service_->done(number));
  return service_->is_computing() ? Status::ok() : Status::busy();
}

Status GroupAverage::fail(Status outcome) {
  if (++failures_in_a_row_ > kMostFailures * static_cast<std::uint64_t>(fabric_.size())) {
    ++statistics_.failures;
    group_.reset();
    return std::move(outcome).with_context(
        fmt::format("'{}': {} groups in a row failed", options_.name, failures_in_a_row_));
  }
  return give_up_group();
}

Status GroupAverage::give_up_group() {
  ++statistics_.failures;
  const std::uint64_t number = group_->sequence;
  group_.reset();
  DUNLIN_TRY(service_->fail(number));
  return Status::busy();
}

Status GroupAverage::move_model() {
  const Memory model = model_;
  const Memory result = result_;
  DUNLIN_TRY(allocate());
  DUNLIN_TRY(partial_->copy(model_, model));
  DUNLIN_TRY(partial_->free(model));
  return partial_->free(result);
}

Status GroupAverage::wait(Duration timeout) {
  return fabric_.wait([&] { return test(); },
                      transport::Awaiting{[&] { return awaited(); }, [&] { return blocker(); }},
                      timeout);
}

Status GroupAverage::run(std::uint64_t iteration) {
  DUNLIN_TRY(start(iteration));
  return wait(fabric_.config().deadline);
}

Status GroupAverage::finish(Duration timeout) {
  DUNLIN_TRY(leave());
  return wait(timeout);
}

std::vector<Awaited> GroupAverage::awaited() const {
  if (request_) return partial_->awaited(*request_);
  return service_ ? service_->awaited() : std::vector<Awaited>();
}

Rank GroupAverage::blocker() const {
  if (request_) return partial_->blocker(*request_);
  return service_ ? service_->blocker() : Rank();
}

GroupAverageStatistics GroupAverage::statistics() const {
  GroupAverageStatistics now = statistics_;
  if (service_) now.changes = service_->changes();
  return now;
}

}  // namespace dunlin::collective
