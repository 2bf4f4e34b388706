// Measures what memory allows an all-reduce in place. Every rank reads its part of all vectors and
// writes the sum to all of them, at the same time as the others and without notifying them. No
// algorithm can move fewer bytes: each of N vectors is read once and written once, which is
// 2 * N * SIZE bytes in all. Prints "us VALUE": the median over chunks of the slowest rank's mean,
// with ordinary or streaming stores, whichever are faster.
//
//   all_reduce_limit RANKS SIZE ITERATIONS WARMUP
#include <atomic>

#include "bench/peers/ranks.h"
#include "collectives/kernels/reduce.h"

namespace {

using dunlin::collective::Stores;

constexpr Stores kStores[] = {Stores::kCached, Stores::kStreaming};

// The distance between vectors, beyond their bytes. If vectors have the same offset within a page,
// stores to all of them, above all streaming stores, are much slower; an algorithm can avoid that.
constexpr std::size_t kStagger = 33 * 64;

struct Arguments {
  int size;
  std::size_t count;  // elements of a vector
  long iterations;
  long warmup;

  std::size_t stride() const { return count * sizeof(float) + kStagger; }
};

struct Shared {
  std::atomic<int> arrived;
  peers::Means means[2][peers::kMostRanks];
};

void run(const Arguments& arguments, int rank, std::byte* vectors, Shared& shared) {
  const auto size = static_cast<std::size_t>(arguments.size);
  const auto at = [&](int part) {
    const std::size_t lines = arguments.count * sizeof(float) / 64;  // whole cache lines each
    return part == arguments.size ? arguments.count * sizeof(float)
                                  : lines * static_cast<std::size_t>(part) / size * 64;
  };
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> targets;
  for (std::size_t vector = 0; vector < size; ++vector) {
    targets.push_back(vectors + vector * arguments.stride() + at(rank));
    inputs.push_back(targets.back());
  }
  const std::size_t count = (at(rank + 1) - at(rank)) / sizeof(float);
  for (int i = 0; i < 2; ++i) {
    const auto once = [&] {
      if (count > 0) dunlin::collective::reduce({}, inputs, targets, count, 1, kStores[i]);
    };
    for (long warm = 0; warm < arguments.warmup; ++warm) once();
    peers::time_chunks(
        arguments.iterations, [&] { peers::align(shared.arrived, arguments.size); }, once,
        shared.means[i][rank]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc == 5 ? std::atoi(argv[1]) : 0;
  if (size < 1 || size > peers::kMostRanks) {
    std::fprintf(stderr, "usage: all_reduce_limit RANKS SIZE ITERATIONS WARMUP\n");
    return 2;
  }
  const Arguments arguments{size, std::strtoul(argv[2], nullptr, 10) / sizeof(float),
                            std::atol(argv[3]), std::atol(argv[4])};
  const std::size_t bytes = arguments.stride() * static_cast<std::size_t>(size);
  auto* const vectors = static_cast<std::byte*>(peers::share(bytes));
  madvise(vectors, bytes, MADV_HUGEPAGE);  // if the system has them
  auto* const shared = static_cast<Shared*>(peers::share(sizeof(Shared)));
  std::fill_n(vectors, bytes, std::byte{0});
  const bool is_ok =
      peers::run_ranks(size, [&](int rank) { run(arguments, rank, vectors, *shared); });
  if (!is_ok) return 1;
  std::printf("us %.4f\n", std::min(peers::median_of_slowest(shared->means[0], size),
                                    peers::median_of_slowest(shared->means[1], size)));
  return 0;
}
