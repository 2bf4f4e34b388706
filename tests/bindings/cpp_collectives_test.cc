// The public C++ interface: collectives, averages along graphs and in groups, windows.
#include <dunlin/communicator.h>
#include <dunlin/graph_properties.h>
#include <dunlin/group_average.h>
#include <dunlin/hierarchical.h>
#include <dunlin/partial_all_reduce.h>
#include <dunlin/stochastic_reduce.h>
#include <dunlin/straggler_ring.h>
#include <dunlin/window.h>

#include <cmath>
#include <numeric>

#include "tests/bindings/cpp_ranks.h"

namespace dunlin_test {
namespace {

using dunlin::Code;
using dunlin::Communicator;
using dunlin::DataType;
using dunlin::Job;
using dunlin::Rank;
using dunlin::ReduceOp;
using dunlin::WeightedRank;

dunlin::Neighborhood neighborhood(Job& job, const char* name) {
  const auto graph = get(dunlin::make_graph(name, job.size()));
  return get(
      dunlin::neighborhood_of(graph, dunlin::Weighting::kUniform, job.members().ranks, job.rank()));
}

TEST(CppCommunicator, HasAllCollectives) {
  run_ranks(3, [](Job& job) {
    auto world = get(Communicator::create(job));
    const int rank = world.rank();
    EXPECT_EQ(world.size(), 3);
    const std::span<float> own = get(world.allocate<float>(2));
    own[0] = own[1] = static_cast<float>(rank);
    EXPECT_OK(world.all_reduce(own, ReduceOp::kSum));
    EXPECT_EQ(own[1], 3);
    EXPECT_OK(world.free(std::as_writable_bytes(own)));

    std::int32_t number = rank + 1;
    std::int32_t result = 0;
    EXPECT_OK(world.reduce(&number, &result, 1, DataType::kInt32, ReduceOp::kProduct, 1));
    EXPECT_EQ(result, rank == 1 ? 6 : 0);
    EXPECT_OK(world.broadcast(&number, 1, DataType::kInt32, 2));
    EXPECT_EQ(number, 3);
    const std::vector<double> blocks = {1.0 + rank, 2.0 + rank, 3.0 + rank};
    double block = 0;
    EXPECT_OK(world.reduce_scatter(blocks.data(), &block, 1, DataType::kFloat64, ReduceOp::kMax));
    EXPECT_EQ(block, 3 + rank);
    std::vector<double> all(3);
    EXPECT_OK(world.all_gather(&block, all.data(), 1, DataType::kFloat64));
    EXPECT_EQ(all, (std::vector<double>{3, 4, 5}));
    EXPECT_OK(world.all_to_all(blocks.data(), all.data(), 1, DataType::kFloat64));
    EXPECT_EQ(all, (std::vector<double>{1.0 + rank, 2.0 + rank, 3.0 + rank}));
    EXPECT_OK(world.barrier());
  });
}

TEST(CppCommunicator, StartsOperationsAndSplits) {
  run_ranks(4, [](Job& job) {
    auto world = get(Communicator::create(job, {.name = "all"}));
    EXPECT_EQ(world.use_all_reduce("no such algorithm").code(), Code::kInvalidArgument);
    EXPECT_OK(world.use_all_reduce("ring"));
    std::vector<float> one(1000, 1);
    std::vector<std::int64_t> two(10, world.rank());
    const auto first = get(world.start_all_reduce(std::span(one), ReduceOp::kSum));
    const auto second = get(world.start_broadcast(two.data(), two.size(), DataType::kInt64, 3));
    const auto third = get(world.start_barrier());
    EXPECT_OK(world.wait(first));
    EXPECT_OK(world.wait(second, kTimeout));
    EXPECT_OK(job.wait([&] { return world.test(third); }, Rank(), "the barrier", kTimeout));
    EXPECT_EQ(one[999], 4);
    EXPECT_EQ(two[9], 3);
    auto part = get(world.split(world.rank() % 2, -world.rank()));
    EXPECT_EQ(part.size(), 2);
    EXPECT_EQ(part.rank(), world.rank() < 2 ? 1 : 0);
    float sum = static_cast<float>(world.rank());
    EXPECT_OK(part.all_reduce(std::span(&sum, 1), ReduceOp::kSum));
    EXPECT_EQ(sum, world.rank() % 2 == 0 ? 2 : 4);
    EXPECT_OK(world.barrier());
  });
}

TEST(CppCommunicator, NamesOfOperationsHaveToAgree) {
  run_ranks(3, [](Job& job) {
    auto world = get(Communicator::create(job, {.name = "named"}));
    float value = 1;
    const std::span<float> values(&value, 1);
    world.name_next("both");
    EXPECT_OK(world.all_reduce(values, ReduceOp::kSum));
    // The name was that of one operation.
    if (world.rank() == 0) world.name_next("");
    EXPECT_OK(world.wait(get(world.start_all_reduce(values, ReduceOp::kSum))));
    EXPECT_EQ(value, 9);
    // A call that is refused has used the name up.
    if (world.rank() == 0) {
      world.name_next("refused");
      EXPECT_EQ(world.broadcast(&value, 1, DataType::kFloat32, 7).code(), Code::kOutOfRange);
    }
    EXPECT_OK(world.barrier());
    world.name_next(world.rank() == 0 ? "a" : "b");
    const dunlin::Status status = world.barrier();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("named \"a\""), std::string::npos) << status.to_string();
    EXPECT_NE(status.message().find("named \"b\""), std::string::npos) << status.to_string();
    EXPECT_OK(job.barrier());
  });
}

TEST(CppGraph, KnowsItsProperties) {
  const auto graph = get(dunlin::make_graph("root-expander", 16));
  EXPECT_TRUE(dunlin::is_strongly_connected(graph));
  EXPECT_GT(
      get(dunlin::spectrum(get(dunlin::MixingMatrix::make(graph, dunlin::Weighting::kUniform))))
          .gap,
      0.1);
  EXPECT_EQ(dunlin::make_graph("no such graph", 4).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(dunlin::one_peer_exponential(8, 1, 2).to, std::vector<int>{5});
  EXPECT_FALSE(dunlin::graph_families().empty());
}

TEST(CppStochasticReduce, AveragesAlongAGraph) {
  for (const auto mode : {dunlin::SyncMode::kNotifyAck, dunlin::SyncMode::kBsp}) {
    run_ranks(4, [mode](Job& job) {
      dunlin::ReduceOptions options{.count = 100, .mode = mode};
      options.neighborhood = neighborhood(job, "complete");
      auto reduce = get(dunlin::StochasticReduce<double>::create(job, options));
      for (double& weight : reduce.model()) weight = job.rank().value();
      const dunlin::ReduceReport report = get(reduce.reduce(kTimeout));
      EXPECT_EQ(report.step, 1U);
      if (mode == dunlin::SyncMode::kNotifyAck) {
        EXPECT_EQ(report.inputs, 3U);
        EXPECT_NEAR(reduce.model()[99], 1.5, 1e-12);
      }
      EXPECT_OK(reduce.start());
      EXPECT_OK(job.wait([&] { return reduce.test(); }, Rank(), "the neighbors", kTimeout));
      EXPECT_EQ(reduce.report().step, 2U);
      EXPECT_OK(job.barrier());
    });
  }
}

TEST(CppStragglerRing, AveragesWhetherOrNotARankIsLate) {
  using Mode = dunlin::Lateness::Mode;
  for (const Mode mode : {Mode::kNever, Mode::kFixed, Mode::kAdaptive}) {
    run_ranks(4, [mode](Job& job) {
      dunlin::StragglerOptions options{.count = 30'000, .is_average = true};
      options.lateness.mode = mode;
      if (mode == Mode::kFixed) options.lateness.step = std::chrono::nanoseconds(1);
      auto ring = get(dunlin::StragglerRing<double>::create(job, options));
      for (double& element : ring.data()) element = job.rank().value();
      const dunlin::StragglerReport report = get(ring.all_reduce(kTimeout));
      EXPECT_EQ(report.step, 1U);
      EXPECT_GE(report.took, report.scattered);
      if (mode == Mode::kNever) {
        EXPECT_EQ(report.timeouts + report.skips, 0U);
      }
      for (const double element : ring.data()) ASSERT_EQ(element, 1.5);
      EXPECT_OK(job.barrier());
      if (mode == Mode::kNever) return;
      options.lateness.alpha = 1;
      EXPECT_EQ(dunlin::StragglerRing<double>::create(job, options).status().code(),
                Code::kInvalidArgument);
      EXPECT_OK(job.barrier());
    });
  }
}

TEST(CppNeighbors, AverageAndGather) {
  run_ranks(3, [](Job& job) {
    auto world = get(Communicator::create(job));
    auto neighbors = get(dunlin::Neighbors::create(job, {.fusion_threshold = 4096}));
    dunlin::NeighborCall call;
    call.set_neighbors(neighborhood(job, "ring"));
    std::vector<float> x(10, static_cast<float>(job.rank().value()));
    std::vector<float> y(10);
    call.input = x.data();
    call.output = y.data();
    call.count = x.size();
    EXPECT_OK(dunlin::check_neighbors(world, call));
    EXPECT_OK(neighbors.average(call));
    const int former = (job.rank().value() + 2) % 3;
    EXPECT_EQ(y[9], static_cast<float>(job.rank().value() + former) / 2);
    const auto request = get(neighbors.start_average(call));
    std::vector<dunlin::Bytes> gathered;
    dunlin::NeighborCall other = call;
    other.name = "gather";
    other.count = static_cast<std::size_t>(job.rank().value());
    const auto gather = get(neighbors.start_gather(other, gathered));
    EXPECT_OK(neighbors.wait(request, kTimeout));
    EXPECT_OK(neighbors.wait(gather, kTimeout));
    EXPECT_EQ(neighbors.test(gather).code(), Code::kNotFound);
    ASSERT_EQ(gathered.size(), 1U);
    EXPECT_EQ(gathered[0].size(), static_cast<std::size_t>(former) * sizeof(float));
    call.sources.push_back({job.rank()});
    EXPECT_EQ(neighbors.average(call).code(), Code::kInvalidArgument);
    EXPECT_OK(world.barrier());
  });
}

TEST(CppHierarchicalNeighbors, AverageHosts) {
  run_ranks(4, [](Job& job) {
    auto neighbors = get(dunlin::Neighbors::create(job));
    dunlin::HierarchicalOptions options;
    options.groups = {{Rank(0), Rank(1)}, {Rank(2), Rank(3)}};
    auto hosts = get(dunlin::HierarchicalNeighbors::create(job, neighbors, options));
    EXPECT_EQ(hosts.groups(), 2);
    EXPECT_EQ(hosts.group(), job.rank().value() / 2);
    std::vector<double> x(5000, job.rank().value());
    dunlin::NeighborCall call{.input = x.data(), .output = x.data(), .count = x.size()};
    call.type = DataType::kFloat64;
    call.self_weight = 0.75;
    call.sources = {{Rank(1 - hosts.group()), 0.25}};
    call.destinations = {{Rank(1 - hosts.group())}};
    EXPECT_OK(hosts.average(call));
    const double means[] = {0.5, 2.5};
    EXPECT_EQ(x[4999], 0.75 * means[hosts.group()] + 0.25 * means[1 - hosts.group()]);
    const auto request = get(hosts.start_average(call));
    EXPECT_OK(hosts.wait(request, kTimeout));
    EXPECT_OK(job.barrier());
  });
}

TEST(CppPartialAllReduce, ServesGroupsThatChange) {
  run_ranks(4, [](Job& job) {
    auto partial = get(dunlin::PartialAllReduce::create(job));
    const std::span<float> model = get(partial.allocate<float>(500));
    model[0] = model[499] = static_cast<float>(job.rank().value());
    dunlin::PartialCall call{.number = 1, .members = {Rank(0), Rank(1), Rank(3)}};
    call.input = call.output = model.data();
    call.count = model.size();
    call.op = ReduceOp::kSum;
    if (job.rank() != Rank(2)) EXPECT_OK(partial.run(call));
    call.number = 2;
    call.members = {Rank(3), Rank(2)};
    if (job.rank() >= Rank(2)) {
      const auto request = get(partial.start(call));
      EXPECT_OK(partial.wait(request, kTimeout));
      EXPECT_EQ(model[499], 6);
    } else {
      EXPECT_EQ(model[499], 4);
      EXPECT_EQ(partial.start(call).status().code(), Code::kInvalidArgument);
    }
    EXPECT_OK(job.barrier());
  });
}

TEST(CppGroupAverage, TrainsInGroups) {
  for (const auto source : {dunlin::GroupSource::kStatic, dunlin::GroupSource::kSmart}) {
    run_ranks(4, [source](Job& job) {
      dunlin::GroupAverageOptions options{.count = 100, .source = source, .group_size = 2};
      auto average = get(dunlin::GroupAverage::create(job, options));
      for (float& weight : average.model()) weight = static_cast<float>(job.rank().value());
      for (std::uint64_t iteration = 0; iteration < 8; ++iteration)
        EXPECT_OK(average.run(iteration));
      EXPECT_GE(average.model()[99], 0);
      EXPECT_LE(average.model()[99], 3);
      EXPECT_OK(average.finish(kTimeout));
      EXPECT_EQ(average.statistics().iterations, 8U);
      EXPECT_OK(job.barrier());
    });
  }
  run_ranks(3, [](Job& job) {
    const auto wrong = dunlin::GroupAverage::create(job, {.count = 1, .ranks_per_host = 2});
    EXPECT_EQ(wrong.status().code(), Code::kInvalidArgument);
  });
}

TEST(CppWindow, DepositsAreNeitherLostNorCountedTwice) {
  run_ranks(3, [](Job& job) {
    dunlin::WindowOptions options;
    options.neighborhood = neighborhood(job, "complete");
    options.count = 10;
    options.is_zeroed = true;
    options.is_readable = true;
    const std::vector<double> initial(10, job.rank().value());
    auto window = get(dunlin::Window<double>::create(job, options, initial));
    std::vector<WeightedRank> to;
    for (const Rank rank : options.neighborhood.out) to.push_back({rank, 0.25});
    EXPECT_OK(window.accumulate(to, 0.5));
    EXPECT_OK(window.flush(kTimeout));
    EXPECT_OK(job.barrier());
    EXPECT_OK(window.progress());
    const Rank other = options.neighborhood.in[0];
    const auto buffer = get(window.buffer(other));
    EXPECT_EQ(buffer.tensor[9], 0.25 * other.value());
    EXPECT_EQ(buffer.p, 0.25);
    EXPECT_EQ(buffer.deposits, 1U);
    EXPECT_EQ(window.buffer(job.rank()).status().code(), Code::kInvalidArgument);
    const auto report = get(window.collect());
    EXPECT_EQ(report.deposits, 2U);
    EXPECT_EQ(window.p(), 1);
    EXPECT_EQ(window.tensor()[9], 0.5 * job.rank().value() + 0.25 * (3 - job.rank().value()));
    // What others have published is read without their taking part.
    window.tensor()[0] = 100 + job.rank().value();
    EXPECT_OK(window.publish());
    EXPECT_OK(job.barrier());
    const WeightedRank from{other, 2};
    EXPECT_OK(window.get(std::span(&from, 1), kTimeout));
    EXPECT_EQ(get(window.buffer(other)).tensor[0], 2 * (100 + other.value()));
    std::vector<double> result(10);
    dunlin::Window<double>::Update update;
    update.self_weight = 0;
    update.from = std::span(&from, 1);
    update.result = result;
    EXPECT_EQ(get(window.update(update)).p, 4);
    EXPECT_EQ(result[0], 4 * (100 + other.value()));
    EXPECT_OK(job.barrier());
  });
}

}  // namespace
}  // namespace dunlin_test
