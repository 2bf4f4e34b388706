// Times Gloo's all-reduces as `dunlin-perf all-reduce` times Dunlin's, for bench/peers/all_reduce:
// float32 sums in place over TCP loopback, with one algorithm after the other. Prints "ALGORITHM
// VALUE" for each, in microseconds.
//
//   all_reduce_gloo RANKS SIZE ITERATIONS WARMUP DIRECTORY
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstring>
#include <memory>

#include "ranks.h"

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;
using Sum = void (*)(void*, const void*, const void*, std::size_t);

constexpr int kAlgorithms = 3;
constexpr const char* kNames[kAlgorithms] = {"ring", "bcube", "halving-doubling"};

struct Arguments {
  int size;
  std::size_t count;
  long iterations;
  long warmup;
  const char* directory;
};

std::shared_ptr<gloo::Context> connect(const Arguments& arguments, int rank) {
  gloo::rendezvous::FileStore store(arguments.directory);
  std::shared_ptr<gloo::transport::Device> device =
      gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, arguments.size);
  context->connectFullMesh(store, device);
  return context;
}

// Small integers, whose sums are exact.
void check(const Arguments& arguments, int rank, std::vector<float>& data,
           const std::function<void()>& once) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 7) + rank;
  once();
  const int ranks = arguments.size;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const int wanted = ranks * static_cast<int>(i % 7) + ranks * (ranks - 1) / 2;
    if (data[i] == static_cast<float>(wanted)) continue;
    std::fprintf(stderr, "wrong data at element %zu\n", i);
    _exit(1);
  }
  std::memset(data.data(), 0, data.size() * sizeof(float));  // zeros stay zeros
}

void run(const Arguments& arguments, int rank, peers::Means* results) {
  const auto context = connect(arguments, rank);
  std::vector<float> data(arguments.count);
  // Made once and reused, like everything that can be.
  gloo::AllreduceHalvingDoubling<float> halving(context, {data.data()},
                                                static_cast<int>(arguments.count));
  std::vector<gloo::AllreduceOptions> options;
  for (const Algorithm algorithm : {Algorithm::RING, Algorithm::BCUBE}) {
    options.emplace_back(context);
    options.back().setOutput(data.data(), data.size());
    options.back().setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
    options.back().setAlgorithm(algorithm);
  }
  gloo::BarrierOptions barrier_options(context);
  const auto barrier = [&] { gloo::barrier(barrier_options); };
  const std::function<void()> algorithms[kAlgorithms] = {
      [&] { gloo::allreduce(options[0]); },
      [&] { gloo::allreduce(options[1]); },
      [&] { halving.run(); },
  };
  for (int i = 0; i < kAlgorithms; ++i) {
    check(arguments, rank, data, algorithms[i]);
    for (long warm = 0; warm < arguments.warmup; ++warm) algorithms[i]();
    peers::time_chunks(arguments.iterations, barrier, algorithms[i],
                       results[i * peers::kMostRanks + rank]);
  }
  barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc == 6 ? std::atoi(argv[1]) : 0;
  if (size < 2 || size > peers::kMostRanks) {
    std::fprintf(stderr, "usage: all_reduce_gloo RANKS SIZE ITERATIONS WARMUP DIRECTORY\n");
    return 2;
  }
  const Arguments arguments{size, std::strtoul(argv[2], nullptr, 10) / sizeof(float),
                            std::atol(argv[3]), std::atol(argv[4]), argv[5]};
  auto* const results = static_cast<peers::Means*>(
      peers::share(kAlgorithms * peers::kMostRanks * sizeof(peers::Means)));
  if (!peers::run_ranks(size, [&](int rank) { run(arguments, rank, results); })) return 1;
  for (int i = 0; i < kAlgorithms; ++i) {
    std::printf("%s %.4f\n", kNames[i],
                peers::median_of_slowest(results + i * peers::kMostRanks, size));
  }
  return 0;
}
