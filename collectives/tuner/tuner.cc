#include "collectives/tuner/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "collectives/schedule/cost.h"
#include "collectives/schedule/gpu_compute.h"
#include "collectives/waiting/outlasting.h"
#include "runtime/gpu/cuda_driver.h"

namespace dunlin::collective {
namespace {

constexpr DataType kType = DataType::kFloat32;
constexpr std::size_t kElement = size_of(kType);
// Long enough that the latency does not matter.
constexpr std::size_t kLongBytes = std::size_t{1} << 20;
constexpr int kRepetitions = 3;
// Communicators with more ranks get no predictions: the programs alone would take gigabytes.
constexpr int kMostPredicted = 512;

class Tuner {
 public:
  Tuner(Communicator& communicator, const TunerOptions& options)
      : communicator_(communicator),
        meeting_(options.meeting != nullptr ? *options.meeting : communicator),
        options_(options),
        clock_(communicator.fabric().clock()) {}

  Result<Tuning> run() {
    if (meeting_.is_on_gpu())
      return Status(Code::kInvalidArgument,
                    "tuning a communicator of GPUs takes one of host memory for the times");
    DUNLIN_TRY(check_options());
    DUNLIN_ASSIGN(memory_, communicator_.allocate(2 * options_.largest_bytes));
    // After an error, calls may still use the memory. The communicator frees it at its end.
    DUNLIN_TRY(measure_all());
    DUNLIN_TRY(communicator_.free(memory_));
    return std::move(tuning_);
  }

 private:
  // Figures that ranks agree on by a call, which may go on after it has expired.
  struct Figures {
    double values[2];
  };

  Status check_options() const {
    constexpr std::size_t kMostBytes = std::size_t{1} << 40;
    const auto refuse = [](const std::string& why) {
      return Status(Code::kInvalidArgument, "tuning: " + why);
    };
    if (options_.factor < 2)
      return refuse(fmt::format("a factor of {} leads to no larger size", options_.factor));
    if (options_.smallest_bytes < kElement || options_.largest_bytes < 2 * kElement ||
        options_.largest_bytes > kMostBytes) {
      return refuse(fmt::format("sizes of {} to {} bytes; possible are {} to {}",
                                options_.smallest_bytes, options_.largest_bytes, kElement,
                                kMostBytes));
    }
    return Status::ok();
  }

  static Status take_largest(Communicator& among, Figures& figures) {
    Outlasting<Figures> shared;
    *shared = figures;
    Status status = among.all_reduce(shared->values, shared->values, std::size(figures.values),
                                     {DataType::kFloat64, ReduceOp::kMax});
    figures = *shared;
    shared.settle(among.fabric(), status);
    return status;
  }

  Status measure_all() {
    tuning_.shape = communicator_.shape();
    DUNLIN_TRY(measure_links());
    DUNLIN_TRY(measure_kernel());
    for (const Collective collective : kAllCollectives) {
      const Problem unit{collective, communicator_.size(), 1, 0};
      const std::size_t widest =
          std::max({unit.input_count(), unit.output_count(), std::size_t{1}});
      if (collective == Collective::kBarrier) continue;  // there is one algorithm
      for (std::size_t bytes = options_.smallest_bytes; bytes * widest <= options_.largest_bytes;
           bytes *= options_.factor) {
        DUNLIN_TRY(choose(collective, bytes));
      }
    }
    return Status::ok();
  }

  // Seconds that one call of `function` takes on the slowest rank of `among`, a communicator of
  // host memory: the best of kRepetitions.
  template <typename Function>
  Result<double> time(Communicator& among, Function&& function) {
    DUNLIN_TRY(function());  // connects, generates plans, touches pages
    double best = std::numeric_limits<double>::max();
    std::int64_t count = 1;
    for (int repetition = 0; repetition <= kRepetitions; ++repetition) {
      DUNLIN_TRY(among.barrier());
      const TimePoint began = clock_.now();
      for (std::int64_t i = 0; i < count; ++i) DUNLIN_TRY(function());
      Figures slowest{{to_seconds(clock_.now() - began) / static_cast<double>(count), 0}};
      DUNLIN_TRY(take_largest(among, slowest));
      const double seconds = slowest.values[0];
      // The first repetition tells how many calls there is time for.
      if (repetition > 0) best = std::min(best, seconds);
      const double share = to_seconds(options_.time) / kRepetitions;
      if (repetition == 0)
        count = std::clamp<std::int64_t>(static_cast<std::int64_t>(share / seconds), 1, 10'000);
    }
    return best;
  }

  // Measures the link from member 0 to the first other member on its host, and to another host.
  Status measure_links() {
    const Grouping& hosts = communicator_.hosts();
    const auto members = hosts.members(hosts.group_of(0));
    const int near = members.size() > 1 ? members[1] : kSelf;
    const int far = hosts.groups() > 1 ? hosts.leader(1) : kSelf;
    for (const int other : {near, far}) {
      if (other == kSelf) continue;
      DUNLIN_ASSIGN(MeasuredLink link, measure_link(other));
      link.between = other == near ? "ranks of a host" : "hosts";
      tuning_.links.push_back(std::move(link));
    }
    return Status::ok();
  }

  Result<MeasuredLink> measure_link(int other) {
    const int rank = communicator_.rank();
    const bool takes_part = rank == 0 || rank == other;
    DUNLIN_ASSIGN(const auto pair, communicator_.split(takes_part ? 0 : 1, rank));
    std::unique_ptr<Communicator> host_pair;
    if (communicator_.is_on_gpu()) {
      DUNLIN_ASSIGN(host_pair, meeting_.split(takes_part ? 0 : 1, rank));
    }
    Communicator& pair_meeting = host_pair ? *host_pair : *pair;
    Figures figures{};
    if (takes_part) {
      // alpha: an exchange of signals. beta: an exchange of a megabyte, both ways at once.
      DUNLIN_ASSIGN(figures.values[0], time(pair_meeting, [&] { return pair->barrier(); }));
      DUNLIN_ASSIGN(const auto memory, pair->allocate(3 * kLongBytes));
      const Call call{Collective::kAllGather,
                      memory.data(),
                      memory.data() + kLongBytes,
                      kLongBytes,
                      {DataType::kUint8},
                      0,
                      "ring"};
      DUNLIN_ASSIGN(const double seconds, time(pair_meeting, [&] { return pair->run(call); }));
      figures.values[1] =
          std::max(0.0, seconds - figures.values[0]) / static_cast<double>(kLongBytes);
    }
    DUNLIN_TRY(take_largest(meeting_, figures));
    return MeasuredLink{"", figures.values[0], figures.values[1]};
  }

  Status measure_kernel() {
    if (communicator_.is_on_gpu()) return measure_gpu_kernel();
    const std::size_t bytes = std::min(kLongBytes, options_.largest_bytes / 2);
    const std::byte* const inputs[] = {memory_.data(), memory_.data() + bytes};
    std::byte* const targets[] = {memory_.data()};
    DUNLIN_ASSIGN(const double seconds, time(meeting_, [&] {
                    reduce({kType, ReduceOp::kSum}, inputs, targets, bytes / kElement);
                    return Status::ok();
                  }));
    tuning_.gamma = seconds / static_cast<double>(bytes);
    return Status::ok();
  }

  // The launch of a reduction of one element, and what a long one takes beside.
  Status measure_gpu_kernel() {
    DUNLIN_ASSIGN(const auto driver, load_cuda_driver());
    DUNLIN_ASSIGN(const auto allocation, driver->find(memory_.data()));
    if (!allocation) return {Code::kInternal, "a communicator's memory is on no GPU"};
    DUNLIN_ASSIGN(auto kernels, GpuKernels::load(driver, allocation->device));
    DUNLIN_ASSIGN(const auto compute,
                  GpuCompute::create(communicator_.fabric(), *driver, std::move(kernels)));
    const std::size_t bytes = std::min(kLongBytes, options_.largest_bytes / 2);
    const std::byte* const inputs[] = {memory_.data(), memory_.data() + bytes};
    std::byte* const targets[] = {memory_.data()};
    const auto measure = [&](std::size_t count) {
      return time(meeting_, [&] {
        Status status = Status::busy();
        while (status.is_busy())
          status = compute->run({kType, ReduceOp::kSum}, inputs, targets, count, 1);
        return status;
      });
    };
    DUNLIN_ASSIGN(launch_, measure(1));
    DUNLIN_ASSIGN(const double seconds, measure(bytes / kElement));
    tuning_.gamma = std::max(0.0, seconds - launch_) / static_cast<double>(bytes);
    return Status::ok();
  }

  Result<double> predict_one(const Algorithm& algorithm, const Problem& problem) {
    if (problem.size > kMostPredicted) return 0.0;
    std::vector<Program> programs;
    for (int rank = 0; rank < problem.size; ++rank) {
      DUNLIN_ASSIGN(Program program, communicator_.program(algorithm, problem, kElement, rank));
      programs.push_back(std::move(program));
    }
    const auto cost = [](const MeasuredLink& link) { return LinkCost{link.alpha, link.beta}; };
    CostModel model = CostModel::uniform(
        tuning_.links.empty() ? LinkCost{} : cost(tuning_.links.front()), tuning_.gamma);
    if (tuning_.links.size() > 1) {
      model = CostModel::grouped(communicator_.hosts(), cost(tuning_.links[0]),
                                 cost(tuning_.links[1]), tuning_.gamma);
    }
    model.launch = launch_;
    DUNLIN_ASSIGN(const CostReport report, predict(programs, kElement, model));
    return report.seconds;
  }

  Status choose(Collective collective, std::size_t bytes) {
    const Problem problem{collective, communicator_.size(),
                          std::max<std::size_t>(bytes / kElement, 1), 0};
    TunedChoice choice{collective, bytes, "", {}};
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.collective != collective || !communicator_.suits(algorithm)) continue;
      TunedCandidate candidate{std::string(algorithm.name), 0, std::nullopt};
      DUNLIN_ASSIGN(candidate.predicted, predict_one(algorithm, problem));
      choice.candidates.push_back(std::move(candidate));
    }
    std::ranges::stable_sort(choice.candidates, {}, &TunedCandidate::predicted);
    const double best = choice.candidates.front().predicted;
    for (TunedCandidate& candidate : choice.candidates) {
      if (candidate.predicted > options_.hopeless * best) continue;
      DUNLIN_ASSIGN(candidate.measured, measure(problem, candidate.algorithm));
    }
    std::ranges::stable_sort(choice.candidates, [](const auto& a, const auto& b) {
      return a.measured.value_or(1e300) < b.measured.value_or(1e300);
    });
    choice.algorithm = choice.candidates.front().algorithm;
    if (options_.report && communicator_.rank() == 0) options_.report(choice);
    tuning_.choices.push_back(std::move(choice));
    return Status::ok();
  }

  Result<double> measure(const Problem& problem, const std::string& algorithm) {
    std::byte* const output = problem.input_count() == problem.output_count() &&
                                      problem.collective != Collective::kAllToAll
                                  ? memory_.data()
                                  : memory_.data() + options_.largest_bytes;
    const Call call{problem.collective, memory_.data(),          output,
                    problem.count,      {kType, ReduceOp::kMax}, 0,
                    algorithm};
    return time(meeting_, [&] { return communicator_.run(call); });
  }

  Communicator& communicator_;
  Communicator& meeting_;  // of host memory
  const TunerOptions& options_;
  const Clock& clock_;
  std::span<std::byte> memory_;
  Tuning tuning_;
  double launch_ = 0;  // of a kernel, in seconds
};

}  // namespace

Result<Tuning> tune(Communicator& communicator, const TunerOptions& options) {
  return Tuner(communicator, options).run();
}

}  // namespace dunlin::collective
