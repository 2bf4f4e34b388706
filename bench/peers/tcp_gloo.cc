// Times Gloo over TCP for bench/peers/tcp and bench/peers/all_reduce, as dunlin-perf times Dunlin.
//
//   tcp_gloo messages SIZE ITERATIONS WARMUP DIRECTORY HOST HOST   half a round trip of two ranks
//   tcp_gloo all-reduce SIZE ITERATIONS WARMUP DIRECTORY HOST...   float32 sums in place, by one
//                                                                  algorithm after the other
//
// HOST is ADDRESS or ADDRESS@NAMESPACE. Prints "NAME VALUE" for each algorithm, in microseconds.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstring>
#include <memory>
#include <string_view>

#include "hosts.h"
#include "ranks.h"

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;
using Sum = void (*)(void*, const void*, const void*, std::size_t);

struct Arguments {
  std::string_view kind;
  std::size_t size;
  long iterations;
  long warmup;
  const char* directory;
  std::vector<peers::Host> hosts;
  int ranks() const { return static_cast<int>(hosts.size()); }
};

struct Way {
  const char* name;
  std::function<void()> once;
};

std::shared_ptr<gloo::Context> connect(const Arguments& arguments, int rank) {
  const peers::Host& host = arguments.hosts[static_cast<std::size_t>(rank)];
  peers::move_to(host);
  gloo::rendezvous::FileStore store(arguments.directory);
  std::shared_ptr<gloo::transport::Device> device =
      gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(host.address.c_str()));
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, arguments.ranks());
  context->connectFullMesh(store, device);
  return context;
}

// Small integers, whose sums are exact.
void check_sums(const Arguments& arguments, int rank, std::vector<float>& data,
                const std::function<void()>& once) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 7) + rank;
  once();
  const int ranks = arguments.ranks();
  for (std::size_t i = 0; i < data.size(); ++i) {
    const int wanted = ranks * static_cast<int>(i % 7) + ranks * (ranks - 1) / 2;
    if (data[i] == static_cast<float>(wanted)) continue;
    std::fprintf(stderr, "wrong data at element %zu\n", i);
    _exit(1);
  }
  std::memset(data.data(), 0, data.size() * sizeof(float));  // zeros stay zeros
}

void time_way(const Arguments& arguments, const std::shared_ptr<gloo::Context>& context, int rank,
              const Way& way, peers::Means* results) {
  gloo::BarrierOptions options(context);
  for (long i = 0; i < arguments.warmup; ++i) way.once();
  peers::time_chunks(
      arguments.iterations, [&] { gloo::barrier(options); }, way.once, results[rank]);
}

void run_messages(const Arguments& arguments, int rank, peers::Means* results) {
  const auto context = connect(arguments, rank);
  std::vector<char> out(arguments.size, 1), in(arguments.size, 2);
  const auto sender = context->createUnboundBuffer(out.data(), out.size());
  const auto receiver = context->createUnboundBuffer(in.data(), in.size());
  const auto send = [&] {
    sender->send(1 - rank, 1);
    sender->waitSend();
  };
  const auto receive = [&] {
    receiver->recv(1 - rank, 1);
    receiver->waitRecv();
  };
  const Way way{"send-recv", [&] {
                  if (rank == 0) send();
                  receive();
                  if (rank == 1) send();
                }};
  time_way(arguments, context, rank, way, results);
}

void run_all_reduce(const Arguments& arguments, int rank, peers::Means* results) {
  const auto context = connect(arguments, rank);
  std::vector<float> data(arguments.size / sizeof(float));
  // Made once and reused, like everything that can be.
  gloo::AllreduceHalvingDoubling<float> halving(context, {data.data()},
                                                static_cast<int>(data.size()));
  std::vector<gloo::AllreduceOptions> options;
  for (const Algorithm algorithm : {Algorithm::RING, Algorithm::BCUBE}) {
    options.emplace_back(context);
    options.back().setOutput(data.data(), data.size());
    options.back().setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
    options.back().setAlgorithm(algorithm);
  }
  const Way ways[] = {{"ring", [&] { gloo::allreduce(options[0]); }},
                      {"bcube", [&] { gloo::allreduce(options[1]); }},
                      {"halving-doubling", [&] { halving.run(); }}};
  for (const Way& way : ways) {
    check_sums(arguments, rank, data, way.once);
    time_way(arguments, context, rank, way, results);
    results += peers::kMostRanks;
  }
  gloo::BarrierOptions barrier(context);
  gloo::barrier(barrier);
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc - 6;
  if (ranks < 2 || ranks > peers::kMostRanks) {
    std::fprintf(stderr,
                 "usage: tcp_gloo messages|all-reduce SIZE ITERATIONS WARMUP DIRECTORY "
                 "HOST HOST...\n");
    return 2;
  }
  const Arguments arguments{
      argv[1], std::strtoul(argv[2], nullptr, 10), std::atol(argv[3]), std::atol(argv[4]),
      argv[5], peers::parse_hosts(ranks, argv + 6)};
  const bool are_messages = arguments.kind == "messages";
  constexpr const char* kNames[] = {"ring", "bcube", "halving-doubling"};
  auto* const results = static_cast<peers::Means*>(
      peers::share(std::size(kNames) * peers::kMostRanks * sizeof(peers::Means)));
  const auto body = [&](int rank) {
    if (are_messages) {
      run_messages(arguments, rank, results);
    } else {
      run_all_reduce(arguments, rank, results);
    }
  };
  if (!peers::run_ranks(ranks, body)) return 1;
  if (are_messages) {
    std::printf("send-recv %.4f\n", peers::median_of_slowest(results, ranks) / 2);
    return 0;
  }
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    std::printf("%s %.4f\n", kNames[i],
                peers::median_of_slowest(results + i * peers::kMostRanks, ranks));
  }
  return 0;
}
