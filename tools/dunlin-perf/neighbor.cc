// neighbor-all-reduce: blocking averages over a node graph, one after the other, out of place.
// Ranks are aligned by a barrier before each chunk; a chunk's sample is its mean per call on the
// rank where that is largest, as of the other collectives (collective.cc).
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "collectives/communicator.h"
#include "collectives/graph/generators.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "tools/dunlin-perf/benchmarks.h"
#include "tools/dunlin-perf/call_means.h"

namespace dunlin::perf {
namespace {

using collective::Communicator;
using collective::DataType;
using collective::NeighborCall;
using collective::NeighborExchange;

class Averages {
 public:
  static Result<std::unique_ptr<Averages>> create(Job& job, const Options& options) {
    std::unique_ptr<Averages> made(new Averages(job, options));
    DUNLIN_ASSIGN(made->call_.type, collective::parse_data_type(options.collective.type));
    DUNLIN_ASSIGN(const collective::Graph graph,
                  collective::make_graph(options.collective.graph, job.size()));
    DUNLIN_ASSIGN(const auto neighborhood,
                  collective::neighborhood_of(graph, collective::Weighting::kUniform, job.ranks(),
                                              job.rank()));
    set_neighbors(made->call_, neighborhood);
    DUNLIN_ASSIGN(made->communicator_, Communicator::create(job.fabric(), {}));
    DUNLIN_ASSIGN(made->exchange_, NeighborExchange::create(job.fabric(), {}));
    return made;
  }

  void resize(std::size_t size) {
    const std::size_t each = size_of(call_.type);
    call_.count = (size + each - 1) / each;
    input_.assign(this->size(), std::byte{0});
    output_.assign(this->size(), std::byte{0});
    call_.input = input_.data();
    call_.output = output_.data();
  }
  std::size_t size() const { return call_.count * size_of(call_.type); }
  Communicator& communicator() { return *communicator_; }
  std::size_t in_degree() const { return call_.sources.size(); }

  Status once() {
    if (options_.poll != Poll::kSpin) return exchange_->run(call_);
    DUNLIN_ASSIGN(const collective::NeighborRequest request, exchange_->start(call_));
    return poll_call(job_, "an average", [&] { return exchange_->test(request); });
  }

  // One call on float64 or float32 values that differ by rank and place.
  Status check() {
    if (call_.type == DataType::kFloat64) return compare<double>(1e-14);
    if (call_.type == DataType::kFloat32) return compare<float>(1e-6);
    return once();
  }

 private:
  Averages(Job& job, const Options& options) : job_(job), options_(options) {}

  static double pattern(Rank rank, std::size_t element) {
    return static_cast<double>(element % 61) / 64 + rank.value();
  }

  template <typename T>
  Status compare(double bound) {
    auto* const input = reinterpret_cast<T*>(input_.data());
    const auto* const output = reinterpret_cast<const T*>(output_.data());
    for (std::size_t i = 0; i < call_.count; ++i) {
      input[i] = static_cast<T>(pattern(job_.rank(), i));
    }
    DUNLIN_TRY(once());
    for (std::size_t i = 0; i < call_.count; ++i) {
      double sum = call_.self_weight * pattern(job_.rank(), i);
      for (const auto& from : call_.sources) sum += from.weight * pattern(from.rank, i);
      if (std::abs(static_cast<double>(output[i]) - sum) <= bound * (1 + std::abs(sum))) continue;
      return {Code::kCorrupted, fmt::format("wrong data: element {} of {} is {}, not {}", i,
                                            call_.count, static_cast<double>(output[i]), sum)};
    }
    return communicator_->barrier();
  }

  Job& job_;
  const Options& options_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<NeighborExchange> exchange_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  NeighborCall call_;
};

Status measure_one(const Options& options, Job& job, Averages& averages, const Output& output) {
  if (options.checks) DUNLIN_TRY(averages.check());
  Row row;
  row.size = averages.size();
  DUNLIN_ASSIGN(const std::vector<double> means,
                call_means(job, averages.communicator(), plan_for(row.size, options),
                           row.iterations, [&] { return averages.once(); }));
  if (!job.is_root()) return Status::ok();
  take_means(row, means);
  // What comes in, of what has to come in.
  row.gbytes_per_s = static_cast<double>(row.size * averages.in_degree()) / (row.ours.p50_us * 1e3);
  DUNLIN_TRY(output.text(fmt::format("{:>10} {:>10} {:>11.3f} {:>11.3f} {:>11.3f} | {:>9.3f}",
                                     row.size, row.iterations, row.ours.min_us, row.ours.p50_us,
                                     row.ours.max_us, *row.gbytes_per_s)));
  auto json = to_json(row);
  json["graph"] = options.collective.graph;
  json["type"] = options.collective.type;
  json["in_degree"] = averages.in_degree();
  return output.json(context(options, job, 0), json);
}

}  // namespace

Status run_neighbor_all_reduce(const Options& options, Job& job, const Output& output) {
  DUNLIN_ASSIGN(const auto averages, Averages::create(job, options));
  if (job.is_root()) {
    DUNLIN_TRY(output.text(fmt::format(
        "over {}: averages of {} ranks over {} (in-degree {}), {}: one blocking call, the slowest "
        "rank's mean per chunk\n"
        "{:>10} {:>10} {:>11} {:>11} {:>11} | {:>9}\n{:>10} {:>10} {:>11} {:>11} {:>11} | {:>9}",
        job.fabric().transport_of(Rank(1)), job.size(), options.collective.graph,
        averages->in_degree(), options.collective.type, "size", "iterations", "min", "p50", "max",
        "received", "bytes", "", "us", "us", "us", "GB/s")));
  }
  for (const std::size_t size : options.sizes) {
    averages->resize(size);
    DUNLIN_TRY(measure_one(options, job, *averages, output));
  }
  return averages->communicator().barrier();
}

}  // namespace dunlin::perf
