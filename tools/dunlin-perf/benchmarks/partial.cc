// partial: averages of disjoint groups of neighboring ranks, all at the same time, in place. Beside
// them stand all-reduces of the same groups, by communicators of their own, and of all ranks.
// Samples are taken as in collective.cc.
#include "collectives/partial/partial_all_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/communicator/communicator.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/call_means.h"
#include "tools/dunlin-perf/benchmarks/collective.h"

namespace dunlin::perf {
namespace {

using collective::Communicator;
using collective::DataType;
using collective::PartialAllReduce;
using collective::PartialCall;

class Groups {
 public:
  static Result<std::unique_ptr<Groups>> create(Job& job, const Options& options) {
    std::unique_ptr<Groups> made(new Groups(job, options));
    PartialCall& call = made->call_;
    DUNLIN_ASSIGN(call.reduction.type, collective::parse_data_type(options.collective.type));
    if (is_integer(call.reduction.type))
      return Status(Code::kInvalidArgument, "averages need floating-point numbers");
    const int size = std::min(options.collective.group_size, job.size());
    const int first = job.rank().value() / size * size;
    for (int rank = first; rank < std::min(first + size, job.size()); ++rank)
      call.members.emplace_back(rank);
    DUNLIN_ASSIGN(made->world_, Communicator::create(job.fabric(), {}));
    DUNLIN_ASSIGN(made->group_, made->world_->split(first, job.rank().value()));
    DUNLIN_ASSIGN(made->partial_, PartialAllReduce::create(job.fabric(), {}));
    return made;
  }

  // Each of the three has memory of its own kind.
  Status resize(std::size_t size) {
    const std::size_t each = size_of(call_.reduction.type);
    call_.count = (size + each - 1) / each;
    for (const auto& [owner, memory] :
         {std::pair(world_.get(), world_memory_), std::pair(group_.get(), group_memory_)}) {
      if (!memory.empty()) DUNLIN_TRY(owner->free(memory));
    }
    if (!partial_memory_.empty()) DUNLIN_TRY(partial_->free(partial_memory_));
    const bool is_registered = options_.memory.kind == MemoryChoice::Kind::kHost;
    any_.assign(is_registered ? 0 : this->size(), std::byte{0});
    world_memory_ = group_memory_ = partial_memory_ = {};
    if (!is_registered || this->size() == 0) return world_->barrier();
    DUNLIN_ASSIGN(world_memory_, world_->allocate(this->size()));
    DUNLIN_ASSIGN(group_memory_, group_->allocate(this->size()));
    DUNLIN_ASSIGN(partial_memory_, partial_->allocate(this->size()));
    return world_->barrier();
  }
  std::size_t size() const { return call_.count * size_of(call_.reduction.type); }
  Communicator& world() { return *world_; }
  const PartialAllReduce& partial() const { return *partial_; }
  std::size_t group_size() const { return call_.members.size(); }

  Status average() {
    ++call_.number;
    call_.input = call_.output = place(partial_memory_);
    if (options_.poll != Poll::kSpin) return partial_->run(call_);
    DUNLIN_ASSIGN(const collective::PartialRequest request, partial_->start(call_));
    return poll_call(job_, "an average", [&] { return partial_->test(request); });
  }
  Status all_reduce_group() { return all_reduce(*group_, group_memory_); }
  Status all_reduce_world() { return all_reduce(*world_, world_memory_); }

  // Checks one call on float64 or float32 values that differ by rank and place.
  Status check() {
    if (call_.reduction.type == DataType::kFloat64) return compare<double>(1e-14);
    if (call_.reduction.type == DataType::kFloat32) return compare<float>(1e-6);
    return average();
  }

 private:
  Groups(Job& job, const Options& options) : job_(job), options_(options) {}

  void* place(std::span<std::byte> memory) { return memory.empty() ? any_.data() : memory.data(); }

  Status all_reduce(Communicator& communicator, std::span<std::byte> memory) {
    const collective::Call call{collective::Collective::kAllReduce, place(memory), place(memory),
                                call_.count, call_.reduction};
    if (options_.poll != Poll::kSpin) return communicator.run(call);
    DUNLIN_ASSIGN(const collective::CollectiveRequest request, communicator.start(call));
    return poll_call(job_, "an average", [&] { return communicator.test(request); });
  }

  static double pattern(Rank rank, std::size_t element) {
    return static_cast<double>(element % 61) / 64 + rank.value();
  }

  template <typename T>
  Status compare(double bound) {
    auto* const model = static_cast<T*>(place(partial_memory_));
    for (std::size_t i = 0; i < call_.count; ++i)
      model[i] = static_cast<T>(pattern(job_.rank(), i));
    DUNLIN_TRY(average());
    for (std::size_t i = 0; i < call_.count; ++i) {
      double mean = 0;
      for (const Rank member : call_.members)
        mean += pattern(member, i) / static_cast<double>(group_size());
      if (std::abs(static_cast<double>(model[i]) - mean) <= bound * (1 + std::abs(mean))) continue;
      return {Code::kCorrupted, fmt::format("wrong data: element {} of {} is {}, not {}", i,
                                            call_.count, static_cast<double>(model[i]), mean)};
    }
    return world_->barrier();
  }

  Job& job_;
  const Options& options_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<PartialAllReduce> partial_;
  std::span<std::byte> world_memory_;
  std::span<std::byte> group_memory_;
  std::span<std::byte> partial_memory_;
  std::vector<std::byte> any_;
  PartialCall call_;
};

// Returns microseconds, on rank 0.
Result<double> median_of(const Options& options, Job& job, Groups& groups,
                         Status (Groups::*once)()) {
  std::uint64_t iterations = 0;
  DUNLIN_ASSIGN(const std::vector<double> means,
                call_means(job, groups.world(), plan_for(groups.size(), options), iterations,
                           [&] { return (groups.*once)(); }));
  Row row;
  take_means(row, means);
  return row.ours.p50_us;
}

Status measure_one(const Options& options, Job& job, Groups& groups, const Output& output) {
  if (options.checks) DUNLIN_TRY(groups.check());
  Row row;
  row.size = groups.size();
  DUNLIN_ASSIGN(const std::vector<double> means,
                call_means(job, groups.world(), plan_for(row.size, options), row.iterations,
                           [&] { return groups.average(); }));
  DUNLIN_ASSIGN(const double group_us, median_of(options, job, groups, &Groups::all_reduce_group));
  DUNLIN_ASSIGN(const double world_us, median_of(options, job, groups, &Groups::all_reduce_world));
  if (!job.is_root()) return Status::ok();
  take_means(row, means);
  row.gbytes_per_s = static_cast<double>(row.size) / (row.ours.p50_us * 1e3);
  DUNLIN_TRY(output.text(
      fmt::format("{:>10} {:>10} {:>11.3f} {:>11.3f} {:>11.3f} {:>9.3f} | {:>11.3f} {:>11.3f}",
                  row.size, row.iterations, row.ours.min_us, row.ours.p50_us, row.ours.max_us,
                  *row.gbytes_per_s, group_us, world_us)));
  auto json = to_json(row);
  json["type"] = options.collective.type;
  json["memory"] = memory_name(options);
  json["checked"] = options.checks && options.collective.type.starts_with("float") &&
                    options.collective.type != "float16";
  json["group_size"] = groups.group_size();
  json["group_all_reduce_us"] = group_us;
  json["all_reduce_us"] = world_us;
  json["programs_generated"] = groups.partial().statistics().programs_generated;
  return output.json(context(options, job, 0), json);
}

}  // namespace

Status run_partial(const Options& options, Job& job, const Output& output) {
  DUNLIN_ASSIGN(const auto groups, Groups::create(job, options));
  if (job.is_root()) {
    DUNLIN_TRY(output.text(fmt::format(
        "over {}: partial all-reduces of {} ranks in groups of {}, {}, in place, {} memory: one "
        "blocking call, the mean of the slowest rank per chunk; medians of all-reduces by "
        "communicators of the groups and of all ranks\n"
        "{:>10} {:>10} {:>11} {:>11} {:>11} {:>9} | {:>11} {:>11}\n"
        "{:>10} {:>10} {:>11} {:>11} {:>11} {:>9} | {:>11} {:>11}",
        job.fabric().transport_of(Rank(1)), job.size(), groups->group_size(),
        options.collective.type, memory_name(options), "size", "iterations", "min", "p50", "max",
        "each", "group", "all", "bytes", "", "us", "us", "us", "GB/s", "us", "us")));
  }
  for (const std::size_t size : options.sizes) {
    DUNLIN_TRY(groups->resize(size));
    DUNLIN_TRY(measure_one(options, job, *groups, output));
  }
  return groups->world().barrier();
}

}  // namespace dunlin::perf
