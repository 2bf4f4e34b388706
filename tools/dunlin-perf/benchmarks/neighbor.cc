// neighbor-all-reduce: blocking averages over a node graph, one after the other, out of place. With
// --tensors several averages are in progress at a time, which fuses small ones
// (neighbor_exchange.h); beside them stands an exchange without fusion. Samples are taken as in
// collective.cc.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "collectives/communicator/communicator.h"
#include "collectives/graph/generators.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/call_means.h"

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
    NeighborCall call;
    DUNLIN_ASSIGN(call.type, collective::parse_data_type(options.collective.type));
    DUNLIN_ASSIGN(const collective::Graph graph,
                  collective::make_graph(options.collective.graph, job.size()));
    DUNLIN_ASSIGN(const auto neighborhood,
                  collective::neighborhood_of(graph, collective::Weighting::kUniform, job.ranks(),
                                              job.rank()));
    set_neighbors(call, neighborhood);
    for (std::uint32_t i = 0; i < options.collective.tensors; ++i) {
      made->names_.push_back(fmt::format("tensor {}", i));
    }
    made->calls_.assign(made->names_.size(), call);
    DUNLIN_ASSIGN(made->communicator_, Communicator::create(job.fabric(), {}));
    DUNLIN_ASSIGN(made->exchange_, NeighborExchange::create(job.fabric(), {}));
    if (!made->has_many()) return made;
    collective::NeighborOptions unfused;
    unfused.name = "unfused";
    unfused.fusion_threshold = 0;
    DUNLIN_ASSIGN(made->unfused_, NeighborExchange::create(job.fabric(), unfused));
    return made;
  }

  void resize(std::size_t size) {
    const std::size_t each = size_of(type());
    const std::size_t count = (size + each - 1) / each;
    input_.assign(count * each * calls_.size(), std::byte{0});
    output_.assign(input_.size(), std::byte{0});
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      calls_[i].name = names_[i];
      calls_[i].count = count;
      calls_[i].input = input_.data() + i * count * each;
      calls_[i].output = output_.data() + i * count * each;
    }
  }
  // Averages one tensor.
  std::size_t size() const { return calls_.front().count * size_of(type()); }
  bool has_many() const { return calls_.size() > 1; }
  Communicator& communicator() { return *communicator_; }
  NeighborExchange& exchange() { return *exchange_; }
  NeighborExchange& unfused() { return *unfused_; }
  std::size_t in_degree() const { return calls_.front().sources.size(); }

  // Averages all tensors.
  Status once(NeighborExchange& exchange) {
    requests_.clear();
    for (const NeighborCall& call : calls_) {
      DUNLIN_ASSIGN(const collective::NeighborRequest request, exchange.start(call));
      requests_.push_back(request);
    }
    for (const collective::NeighborRequest request : requests_) DUNLIN_TRY(end(exchange, request));
    return Status::ok();
  }

  // Checks one round on float64 or float32 values that differ by rank and place.
  Status check(NeighborExchange& exchange) {
    if (type() == DataType::kFloat64) return compare<double>(exchange, 1e-14);
    if (type() == DataType::kFloat32) return compare<float>(exchange, 1e-6);
    return once(exchange);
  }

 private:
  Averages(Job& job, const Options& options) : job_(job), options_(options) {}

  static double pattern(Rank rank, std::size_t element) {
    return static_cast<double>(element % 61) / 64 + rank.value();
  }

  DataType type() const { return calls_.front().type; }

  Status end(NeighborExchange& exchange, collective::NeighborRequest request) {
    if (options_.poll != Poll::kSpin) return exchange.wait(request, job_.config().deadline);
    return poll_call(job_, "an average", [&] { return exchange.test(request); });
  }

  template <typename T>
  Status compare(NeighborExchange& exchange, double bound) {
    auto* const input = reinterpret_cast<T*>(input_.data());
    const auto* const output = reinterpret_cast<const T*>(output_.data());
    const std::size_t count = input_.size() / sizeof(T);
    const NeighborCall& call = calls_.front();
    for (std::size_t i = 0; i < count; ++i) input[i] = static_cast<T>(pattern(job_.rank(), i));
    std::ranges::fill(output_, std::byte{0});
    DUNLIN_TRY(once(exchange));
    for (std::size_t i = 0; i < count; ++i) {
      double sum = call.self_weight * pattern(job_.rank(), i);
      for (const auto& from : call.sources) sum += from.weight * pattern(from.rank, i);
      if (std::abs(static_cast<double>(output[i]) - sum) <= bound * (1 + std::abs(sum))) continue;
      return {Code::kCorrupted, fmt::format("wrong data: element {} of {} is {}, not {}", i, count,
                                            static_cast<double>(output[i]), sum)};
    }
    return communicator_->barrier();
  }

  Job& job_;
  const Options& options_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<NeighborExchange> exchange_;
  std::unique_ptr<NeighborExchange> unfused_;
  std::vector<std::byte> input_;   // all tensors, one after the other
  std::vector<std::byte> output_;  // the same
  std::vector<std::string> names_;
  std::vector<NeighborCall> calls_;
  std::vector<collective::NeighborRequest> requests_;
};

// Fills the latencies of the row: those of one round of the exchange.
Result<Row> measure(const Options& options, Job& job, Averages& averages,
                    NeighborExchange& exchange) {
  if (options.checks) DUNLIN_TRY(averages.check(exchange));
  Row row;
  row.size = averages.size();
  const std::size_t round_bytes = row.size * options.collective.tensors;
  DUNLIN_ASSIGN(const std::vector<double> means,
                call_means(job, averages.communicator(), plan_for(round_bytes, options),
                           row.iterations, [&] { return averages.once(exchange); }));
  take_means(row, means);
  // The received bytes, of those that must arrive.
  row.gbytes_per_s =
      static_cast<double>(round_bytes * averages.in_degree()) / (row.ours.p50_us * 1e3);
  return row;
}

nlohmann::ordered_json facts_of(const Options& options, const Averages& averages, const Row& row) {
  auto json = to_json(row);
  json["graph"] = options.collective.graph;
  json["type"] = options.collective.type;
  json["in_degree"] = averages.in_degree();
  return json;
}

Status measure_one(const Options& options, Job& job, Averages& averages, const Output& output) {
  DUNLIN_ASSIGN(const Row row, measure(options, job, averages, averages.exchange()));
  if (!job.is_root()) return Status::ok();
  DUNLIN_TRY(output.text(fmt::format("{:>10} {:>10} {:>11.3f} {:>11.3f} {:>11.3f} | {:>9.3f}",
                                     row.size, row.iterations, row.ours.min_us, row.ours.p50_us,
                                     row.ours.max_us, *row.gbytes_per_s)));
  return output.json(context(options, job, 0), facts_of(options, averages, row));
}

// The mean number of parts of a message since `before`.
double parts_per_message(const collective::NeighborTraffic& before,
                         const collective::NeighborTraffic& now) {
  return static_cast<double>(now.parts - before.parts) /
         static_cast<double>(std::max<std::uint64_t>(now.messages - before.messages, 1));
}

Status measure_many(const Options& options, Job& job, Averages& averages, const Output& output) {
  const collective::NeighborTraffic before = averages.exchange().traffic();
  DUNLIN_ASSIGN(const Row fused, measure(options, job, averages, averages.exchange()));
  const double parts = parts_per_message(before, averages.exchange().traffic());
  DUNLIN_ASSIGN(const Row unfused, measure(options, job, averages, averages.unfused()));
  if (!job.is_root()) return Status::ok();
  const double gain = unfused.ours.p50_us / fused.ours.p50_us;
  DUNLIN_TRY(output.text(
      fmt::format("{:>10} {:>10} {:>11.3f} {:>11.3f} {:>11.3f} {:>9.3f} | {:>11.3f} {:>9.2f} "
                  "{:>9.1f}",
                  fused.size, fused.iterations, fused.ours.min_us, fused.ours.p50_us,
                  fused.ours.max_us, *fused.gbytes_per_s, unfused.ours.p50_us, gain, parts)));
  auto json = facts_of(options, averages, fused);
  json["tensors"] = options.collective.tensors;
  json["unfused_us"] = unfused.ours.p50_us;
  json["gain"] = gain;
  json["parts_per_message"] = parts;
  return output.json(context(options, job, 0), json);
}

Status print_heading(const Options& options, Job& job, const Averages& averages,
                     const Output& output) {
  if (!job.is_root()) return Status::ok();
  const std::string what =
      fmt::format("over {}: averages of {} ranks over {} (in-degree {}), {}",
                  job.fabric().transport_of(Rank(1)), job.size(), options.collective.graph,
                  averages.in_degree(), options.collective.type);
  if (!averages.has_many()) {
    return output.text(fmt::format(
        "{}: one blocking call, the mean of the slowest rank per chunk\n"
        "{:>10} {:>10} {:>11} {:>11} {:>11} | {:>9}\n{:>10} {:>10} {:>11} {:>11} {:>11} | {:>9}",
        what, "size", "iterations", "min", "p50", "max", "received", "bytes", "", "us", "us", "us",
        "GB/s"));
  }
  return output.text(fmt::format(
      "{}: {} tensors, started one after the other and then waited for, the slowest rank's mean "
      "per "
      "chunk; beside it the median without fusion, what fusion gains, and rank 0's parts per "
      "message\n"
      "{:>10} {:>10} {:>11} {:>11} {:>11} {:>9} | {:>11} {:>9} {:>9}\n"
      "{:>10} {:>10} {:>11} {:>11} {:>11} {:>9} | {:>11} {:>9} {:>9}",
      what, options.collective.tensors, "size", "iterations", "min", "p50", "max", "received",
      "unfused", "gain", "parts", "bytes", "", "us", "us", "us", "GB/s", "us", "", ""));
}

}  // namespace

Status run_neighbor_all_reduce(const Options& options, Job& job, const Output& output) {
  DUNLIN_ASSIGN(const auto averages, Averages::create(job, options));
  DUNLIN_TRY(print_heading(options, job, *averages, output));
  for (const std::size_t size : options.sizes) {
    averages->resize(size);
    DUNLIN_TRY(averages->has_many() ? measure_many(options, job, *averages, output)
                                    : measure_one(options, job, *averages, output));
  }
  return averages->communicator().barrier();
}

}  // namespace dunlin::perf
