// groups: the group service, and the calls for which a training program waits when it uses it.
//   - A request: from ask() to its answer, timed at rank 1 after all other ranks have left. The
//     service is at rank 0. The limit is the bare ping-pong of the two.
//   - Requests of all ranks: every rank asks, meets its group (in a partial all-reduce of nothing)
//     and asks again; the rate is that of all ranks. A static schedule sends no requests, so it
//     shows the meetings alone.
//   - Steps of GroupAverage for each size, from start() to the end, timed at rank 0. The sum of all
//     models is checked. Beside them stands the average in fixed groups of as many neighbors, as
//     dunlin-perf partial measures it.
// No barrier separates the steps: a rank that waits in a barrier may belong to a group for which
// other ranks wait. So each run ends as a training does, by leaving.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "collectives/communicator/communicator.h"
#include "collectives/groups/group_average.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/call_means.h"
#include "tools/dunlin-perf/benchmarks/pair.h"
#include "tools/dunlin-perf/benchmarks/ping_pong.h"

namespace dunlin::perf {
namespace {

using collective::Communicator;
using collective::GroupAverage;
using collective::GroupAverageOptions;
using collective::GroupNotice;
using collective::GroupOptions;
using collective::GroupService;
using collective::GroupSource;
using collective::PartialAllReduce;
using collective::PartialCall;

constexpr Rank kServer(0);
constexpr Rank kAsker(1);
constexpr GroupSource kMeasured[] = {GroupSource::kStatic, GroupSource::kSmart};
// The most iterations without --iterations: in a step, ranks meet that may share a core.
constexpr std::uint64_t kMostSteps = 2'000;
// Ranks that have left wait while others measure. A death ends this wait at once.
constexpr Duration kLongest = std::chrono::hours(24);

// Repeats until a plan is fulfilled. Each rank decides by itself.
class Steps {
 public:
  Steps(const Plan& plan, const Clock& clock) : plan_(plan), clock_(clock), began_(clock.now()) {}
  bool next() {
    const bool is_over = plan_.duration != Duration::zero()
                             ? clock_.now() - began_ >= plan_.duration
                             : done_ >= plan_.iterations;
    if (!is_over) ++done_;
    return !is_over;
  }
  std::uint64_t done() const { return done_; }

 private:
  const Plan& plan_;
  const Clock& clock_;
  TimePoint began_;
  std::uint64_t done_ = 0;
};

class GroupBench {
 public:
  static Result<std::unique_ptr<GroupBench>> create(Job& job, const Options& options) {
    std::unique_ptr<GroupBench> made(new GroupBench(job, options));
    DUNLIN_ASSIGN(made->world_, Communicator::create(job.fabric(), {}));
    collective::PartialOptions partial;
    partial.name = "perf groups";
    DUNLIN_ASSIGN(made->partial_, PartialAllReduce::create(job.fabric(), partial));
    const Grouping& hosts = made->world_->hosts();
    const int each = static_cast<int>(hosts.members(0).size());
    made->groups_.layout = {job.size(), 1};
    if (hosts.groups() * each == job.size()) made->groups_.layout = {hosts.groups(), each};
    made->groups_.group_size = std::min(std::max(options.collective.group_size, 2), job.size());
    return made;
  }

  const GroupOptions& groups() const { return groups_; }
  Communicator& world() { return *world_; }

  // Returns the row on rank 0, and an empty row elsewhere. Collective.
  Result<Row> ask_alone();
  // Returns the requests of all ranks per second. Collective.
  Result<double> ask_together(GroupSource source);
  struct StepFigures {
    Row row;
    double partial_us = 0;  // of fixed groups
    double members = 0;     // of a group, on average
  };
  // Collective.
  Result<StepFigures> step(GroupSource source, std::size_t size);

 private:
  using Grouping = collective::Grouping;

  GroupBench(Job& job, const Options& options) : job_(job), options_(options) {}
  const Clock& clock() const { return job_.fabric().clock(); }
  Plan plan(std::size_t size) const {
    Plan plan = plan_for(size, options_);
    if (options_.iterations == 0) plan.iterations = std::min(plan.iterations, kMostSteps);
    return plan;
  }
  Result<std::unique_ptr<GroupService>> serve(const char* what) {
    return GroupService::create(job_.fabric(),
                                {fmt::format("perf {} {}", what, ++made_), groups_, 0});
  }
  // Calls progress() until `ready()`.
  template <typename Ready>
  Status await(GroupService& service, Duration timeout, Ready&& ready) {
    Status status;
    const Rank peer = job_.rank() == kServer ? kAsker : kServer;
    DUNLIN_TRY(job_.await(peer, "the group service", timeout, [&] {
      status = service.progress();
      return status.is_error() || ready();
    }));
    return status;
  }
  Status leave(GroupService& service) {
    DUNLIN_TRY(service.leave());
    DUNLIN_TRY(await(service, kLongest, [&] { return service.is_over(); }));
    return world_->barrier();
  }
  // Returns when there is something to do.
  Result<GroupNotice> answer(GroupService& service) {
    std::optional<GroupNotice> notice;
    DUNLIN_TRY(await(service, job_.config().deadline,
                     [&] { return (notice = service.poll()).has_value(); }));
    return *notice;
  }
  Status ask_once(GroupService& service, std::uint64_t iteration);
  Status meet_group(GroupService& service, const GroupNotice& notice);
  Result<double> average_neighbors(std::size_t count);
  Status check_sum(const GroupAverage& average);
  Result<Summary> bare_round_trip(const Plan& plan);

  Job& job_;
  const Options& options_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<PartialAllReduce> partial_;
  GroupOptions groups_;
  std::unique_ptr<Pair> pair_;  // lives to the end, because others use the link, too
  int made_ = 0;
  std::uint64_t last_number_ = 0;  // of partial_
};

Result<Summary> GroupBench::bare_round_trip(const Plan& plan) {
  Timer timer(true);
  if (job_.rank() > kAsker) return Summary{};
  DUNLIN_ASSIGN(pair_, Pair::create(job_, 0));
  Pair* const pair = pair_.get();
  if (pair->bare() == nullptr) return Summary{};
  const auto trip = [&] { return round_trip(*pair->bare(), pair->leads()); };
  DUNLIN_TRY(timer.warm_up(plan.warmup, trip));
  DUNLIN_TRY(timer.run(plan.iterations, trip));
  DUNLIN_TRY(pair->sync());
  return timer.histogram().summary();
}

Result<Row> GroupBench::ask_alone() {
  const Plan plan = this->plan(0);
  DUNLIN_ASSIGN(const Summary bare, bare_round_trip(plan));
  DUNLIN_ASSIGN(const auto service, serve("ask"));
  Row own;
  Histogram timed;
  if (job_.rank() == kAsker) {
    // No rank is drafted only after all others have left.
    std::uint64_t iteration = 0;
    for (bool is_alone = job_.size() == 1; !is_alone;) {
      DUNLIN_TRY(service->ask(iteration++));
      DUNLIN_ASSIGN(const GroupNotice notice, answer(*service));
      is_alone = notice.group.is_alone();
      // A group that has members which leave will break.
      DUNLIN_TRY(is_alone ? service->done(notice.group.sequence)
                          : service->fail(notice.group.sequence));
      while (!service->is_computing()) {
        DUNLIN_ASSIGN(const GroupNotice next, answer(*service));
        if (next.kind != GroupNotice::Kind::kJoin) continue;
        is_alone = next.group.is_alone();
        DUNLIN_TRY(is_alone ? service->done(next.group.sequence)
                            : service->fail(next.group.sequence));
      }
    }
    for (std::uint64_t i = 0; i < plan.warmup; ++i) DUNLIN_TRY(ask_once(*service, iteration++));
    for (Steps steps(plan, clock()); steps.next();) {
      const TimePoint began = clock().now();
      DUNLIN_TRY(ask_once(*service, iteration++));
      timed.add(static_cast<double>((clock().now() - began).count()));
      own.iterations = steps.done();
    }
    own.take(timed, 1, options_.has_histogram);
    own.samples = timed.count();
  }
  DUNLIN_TRY(leave(*service));
  DUNLIN_ASSIGN(const auto texts, job_.gather({kAsker}, to_json(own).dump()));
  if (!job_.is_root()) return Row{};
  Row row = row_from_json(nlohmann::ordered_json::parse(texts.front()));
  if (bare.p50_us > 0) {
    row.limit = bare;
    row.ratio = row.ours.p50_us / bare.p50_us;
  }
  return row;
}

// Returns when this rank may compute again.
Status GroupBench::ask_once(GroupService& service, std::uint64_t iteration) {
  DUNLIN_TRY(service.ask(iteration));
  while (!service.is_computing()) {
    DUNLIN_ASSIGN(const GroupNotice notice, answer(service));
    if (notice.kind == GroupNotice::Kind::kJoin) DUNLIN_TRY(meet_group(service, notice));
  }
  return Status::ok();
}

Status GroupBench::meet_group(GroupService& service, const GroupNotice& notice) {
  const std::uint64_t number = notice.group.sequence;
  if (notice.group.is_alone()) return service.done(number);
  PartialCall call;
  call.number = last_number_ + number;
  call.members = notice.group.ranks;
  DUNLIN_ASSIGN(const auto request, partial_->start(call));
  Status met = Status::busy();
  bool is_broken = false;
  DUNLIN_TRY(await(service, job_.config().deadline, [&] {
    met = partial_->test(request);
    is_broken = met.is_busy() && service.poll().has_value();
    return !met.is_busy() || is_broken;
  }));
  if (is_broken) {
    // A member has left. The next notice reports its end.
    (void)partial_->wait(request, Duration::zero());
    return Status::ok();
  }
  return met.is_error() ? service.fail(number) : service.done(number);
}

Result<double> GroupBench::ask_together(GroupSource source) {
  const Plan plan = this->plan(0);
  DUNLIN_ASSIGN(const auto service, serve("asks"));
  DUNLIN_ASSIGN(const auto schedule, collective::StaticSchedule::make(groups_.layout));
  const auto once = [&](std::uint64_t iteration) -> Status {
    if (source != GroupSource::kStatic) return ask_once(*service, iteration);
    PartialCall call;
    const collective::Group group = schedule.group_of(iteration, job_.rank());
    if (group.is_alone()) return Status::ok();
    call.number = last_number_ + group.sequence;
    call.members = group.ranks;
    DUNLIN_ASSIGN(const auto request, partial_->start(call));
    return poll_call(job_, "its group", [&] { return partial_->test(request); });
  };
  std::uint64_t iteration = 0;
  for (; iteration < plan.warmup; ++iteration) DUNLIN_TRY(once(iteration));
  Steps steps(plan, clock());
  const TimePoint began = clock().now();
  // The groups of a schedule wait for all their members, so all ranks make the same number.
  while (source == GroupSource::kStatic ? iteration - plan.warmup < plan.iterations : steps.next())
    DUNLIN_TRY(once(iteration++));
  const double rate =
      static_cast<double>(iteration - plan.warmup) / to_seconds(clock().now() - began);
  DUNLIN_TRY(leave(*service));
  std::vector<double> sum{rate};
  DUNLIN_TRY(world_->all_reduce(sum.data(), sum.data(), 1, {collective::DataType::kFloat64}));
  // The largest number that any rank has used.
  std::vector<double> last{static_cast<double>(
      last_number_ + (iteration + 1) * 4 * static_cast<std::uint64_t>(job_.size()))};
  DUNLIN_TRY(maximize(*world_, last));
  last_number_ = static_cast<std::uint64_t>(last.front());
  return sum.front();
}

// Averages do not change the sum.
Status GroupBench::check_sum(const GroupAverage& average) {
  const std::span<const float> model = average.model();
  std::vector<double> sums(model.begin(), model.end());
  DUNLIN_TRY(
      world_->all_reduce(sums.data(), sums.data(), sums.size(), {collective::DataType::kFloat64}));
  const int ranks = job_.size();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double wanted = ranks * static_cast<double>(i % 61) / 64 + ranks * (ranks - 1) / 2.0;
    if (std::abs(sums[i] - wanted) <= 1e-4 * (1 + wanted)) continue;
    return {Code::kCorrupted, fmt::format("wrong data: the sum of all models' element {} of {} is "
                                          "{}, not {}",
                                          i, sums.size(), sums[i], wanted)};
  }
  return Status::ok();
}

// Times are in microseconds.
Result<double> GroupBench::average_neighbors(std::size_t count) {
  PartialCall call;
  const int first = job_.rank().value() / groups_.group_size * groups_.group_size;
  const int end = std::min(first + groups_.group_size, job_.size());
  for (int rank = first; rank < end; ++rank) call.members.emplace_back(rank);
  DUNLIN_ASSIGN(const auto memory, partial_->allocate(count * sizeof(float)));
  call.input = call.output = memory.data();
  call.count = count;
  Row row;
  DUNLIN_ASSIGN(const std::vector<double> means,
                call_means(job_, *world_, plan(count * sizeof(float)), row.iterations, [&] {
                  call.number = ++last_number_;
                  return partial_->run(call);
                }));
  take_means(row, means);
  DUNLIN_TRY(world_->barrier());
  DUNLIN_TRY(partial_->free(memory));
  return row.ours.p50_us;
}

Result<GroupBench::StepFigures> GroupBench::step(GroupSource source, std::size_t size) {
  GroupAverageOptions wanted;
  wanted.name = fmt::format("perf steps {}", ++made_);
  wanted.count = std::max<std::size_t>(1, (size + sizeof(float) - 1) / sizeof(float));
  wanted.source = source;
  wanted.groups = groups_;
  StepFigures figures;
  DUNLIN_ASSIGN(figures.partial_us, average_neighbors(wanted.count));
  DUNLIN_ASSIGN(const auto average, GroupAverage::create(job_.fabric(), wanted));
  const Plan plan = this->plan(size);
  const std::span<float> model = average->model();
  for (std::size_t i = 0; i < model.size(); ++i)
    model[i] = static_cast<float>(i % 61) / 64 + static_cast<float>(job_.rank().value());
  DUNLIN_TRY(world_->barrier());
  Histogram timed;
  std::uint64_t iteration = 0;
  for (; iteration < plan.warmup; ++iteration) DUNLIN_TRY(average->run(iteration));
  const TimePoint all_began = clock().now();
  Steps steps(plan, clock());
  while (source == GroupSource::kStatic ? iteration - plan.warmup < plan.iterations
                                        : steps.next()) {
    const TimePoint began = clock().now();
    DUNLIN_TRY(average->run(iteration++));
    timed.add(static_cast<double>((clock().now() - began).count()));
  }
  std::vector<double> rate{static_cast<double>(timed.count()) /
                           to_seconds(clock().now() - all_began)};
  DUNLIN_TRY(average->finish(kLongest));
  DUNLIN_TRY(world_->all_reduce(rate.data(), rate.data(), 1, {collective::DataType::kFloat64}));
  if (options_.checks) DUNLIN_TRY(check_sum(*average));
  figures.row.size = wanted.count * sizeof(float);
  figures.row.iterations = timed.count();
  figures.row.take(timed, 1, options_.has_histogram);
  figures.row.messages_per_s = rate.front();
  const collective::GroupAverageStatistics done = average->statistics();
  if (done.groups > 0)
    figures.members = static_cast<double>(done.members) / static_cast<double>(done.groups);
  // No rank frees its memory before all are done.
  DUNLIN_TRY(world_->barrier());
  return figures;
}

Status tell_asks(const Options& options, Job& job, const Output& output, GroupBench& bench) {
  DUNLIN_ASSIGN(const Row alone, bench.ask_alone());
  if (job.is_root()) {
    const std::string limit = alone.limit ? fmt::format("; bare round trip {:.3f} us, ratio {:.2f}",
                                                        alone.limit->p50_us, *alone.ratio)
                                          : "";
    DUNLIN_TRY(output.text(fmt::format(
        "one asks: {} asks of rank 1 at rank 0: min {:.3f}, p50 {:.3f}, p99 {:.3f}, max {:.3f} "
        "us{}",
        alone.iterations, alone.ours.min_us, alone.ours.p50_us, alone.ours.p99_us,
        alone.ours.max_us, limit)));
    auto json = to_json(alone);
    json["part"] = "ask";
    DUNLIN_TRY(output.json(context(options, job, 0), json));
  }
  for (const GroupSource source : kMeasured) {
    DUNLIN_ASSIGN(const double rate, bench.ask_together(source));
    if (!job.is_root()) continue;
    DUNLIN_TRY(output.text(fmt::format(
        "all ask: {:>6}: {:.0f} {} per second of all ranks, which meet in groups",
        to_string(source), rate, source == GroupSource::kStatic ? "meetings" : "asks")));
    DUNLIN_TRY(output.json(context(options, job, 0), {{"part", "asks"},
                                                      {"source", to_string(source)},
                                                      {"group_size", bench.groups().group_size},
                                                      {"asks_per_s", rate}}));
  }
  return Status::ok();
}

Status tell_steps(const Options& options, Job& job, const Output& output, GroupBench& bench) {
  if (job.is_root()) {
    DUNLIN_TRY(output.text(fmt::format(
        "steps: one GroupAverage::run(), float32; all/s: steps of all ranks; partial: one partial "
        "all-reduce of {} fixed neighbors\n"
        "{:>6} {:>10} {:>10} {:>11} {:>11} {:>11} {:>11} {:>7} | {:>11}\n"
        "{:>6} {:>10} {:>10} {:>11} {:>11} {:>11} {:>11} {:>7} | {:>11}",
        bench.groups().group_size, "groups", "size", "iterations", "min", "p50", "p99", "all/s",
        "members", "partial", "", "bytes", "", "us", "us", "us", "", "", "us")));
  }
  for (const std::size_t size : options.sizes) {
    for (const GroupSource source : kMeasured) {
      DUNLIN_ASSIGN(const GroupBench::StepFigures figures, bench.step(source, size));
      if (!job.is_root()) continue;
      const Row& row = figures.row;
      DUNLIN_TRY(output.text(fmt::format(
          "{:>6} {:>10} {:>10} {:>11.3f} {:>11.3f} {:>11.3f} {:>11.0f} {:>7.2f} | {:>11.3f}",
          to_string(source), row.size, row.iterations, row.ours.min_us, row.ours.p50_us,
          row.ours.p99_us, *row.messages_per_s, figures.members, figures.partial_us)));
      auto json = to_json(row);
      json["part"] = "step";
      json["source"] = to_string(source);
      json["group_size"] = bench.groups().group_size;
      json["members"] = figures.members;
      json["checked"] = options.checks;
      json["partial_us"] = figures.partial_us;
      DUNLIN_TRY(output.json(context(options, job, 0), json));
    }
  }
  return Status::ok();
}

}  // namespace

Status run_groups(const Options& options, Job& job, const Output& output) {
  DUNLIN_ASSIGN(const auto bench, GroupBench::create(job, options));
  if (job.is_root()) {
    DUNLIN_TRY(output.text(
        fmt::format("over {}: groups of {} among {} ranks, {} hosts of {}",
                    job.fabric().transport_of(Rank(1)), bench->groups().group_size, job.size(),
                    bench->groups().layout.hosts, bench->groups().layout.workers_per_host)));
  }
  DUNLIN_TRY(tell_asks(options, job, output, *bench));
  DUNLIN_TRY(tell_steps(options, job, output, *bench));
  return bench->world().barrier();
}

}  // namespace dunlin::perf
