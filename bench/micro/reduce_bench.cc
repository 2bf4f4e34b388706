// Compares the reduction kernels with memcpy, which shows what the memory can do. They reduce two
// inputs into one target (a reduce step), or into two targets (a step that also passes its result
// on), with cached and with streaming stores. Also measures the cost of a call with almost no work.
//
// GB/s counts the bytes that must move: every input is read and every target written. For memcpy,
// the read and the write are counted in the same way. The reads by which cached stores fetch lines
// that are not in the cache are not counted.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "collectives/kernels/reduce.h"

namespace dunlin::collective {
namespace {

constexpr std::size_t kAlignment = 4096;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

Buffer make_buffer(std::size_t size) {
  const std::size_t whole = (size + kAlignment - 1) / kAlignment * kAlignment;
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole)));
  std::memset(buffer.get(), 0, whole);
  return buffer;
}

void reduce_to(benchmark::State& state, Reduction reduction, std::size_t inputs,
               std::size_t targets, Stores stores) {
  const auto size = static_cast<std::size_t>(state.range(0));
  std::vector<Buffer> buffers;
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (std::size_t i = 0; i < inputs + targets; ++i) {
    buffers.push_back(make_buffer(size));
    if (i < inputs) {
      from.push_back(buffers.back().get());
    } else {
      to.push_back(buffers.back().get());
    }
  }
  for (auto _ : state) {
    reduce(reduction, from, to, size / size_of(reduction.type), 3, stores);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(inputs + targets) *
                          state.range(0));
}

void memcpy_limit(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const Buffer from = make_buffer(size);
  const Buffer to = make_buffer(size);
  for (auto _ : state) {
    std::memcpy(to.get(), from.get(), size);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * state.range(0));
}

constexpr Reduction kFloatSum = {DataType::kFloat32, ReduceOp::kSum};
constexpr Reduction kFloatAverage = {DataType::kFloat32, ReduceOp::kAverage};
constexpr Reduction kBrainSum = {DataType::kBfloat16, ReduceOp::kSum};
constexpr Reduction kHalfSum = {DataType::kFloat16, ReduceOp::kSum};

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("bytes")->RangeMultiplier(8)->Range(4 << 10, 64 << 20);
}
void small_sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("bytes")->Arg(4)->Arg(16)->Arg(28)->Arg(64);
}

BENCHMARK(memcpy_limit)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, float32_sum_2_to_1, kFloatSum, 2, 1, Stores::kCached)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, float32_sum_2_to_1_streaming, kFloatSum, 2, 1, Stores::kStreaming)
    ->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, float32_sum_2_to_2, kFloatSum, 2, 2, Stores::kCached)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, float32_sum_2_to_2_streaming, kFloatSum, 2, 2, Stores::kStreaming)
    ->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, float32_avg_2_to_1, kFloatAverage, 2, 1, Stores::kCached)
    ->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, bfloat16_sum_2_to_1, kBrainSum, 2, 1, Stores::kCached)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, bfloat16_sum_2_to_1_streaming, kBrainSum, 2, 1, Stores::kStreaming)
    ->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, bfloat16_sum_2_to_2, kBrainSum, 2, 2, Stores::kCached)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, bfloat16_sum_2_to_2_streaming, kBrainSum, 2, 2, Stores::kStreaming)
    ->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, float16_sum_2_to_1, kHalfSum, 2, 1, Stores::kCached)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, float32_sum_17_to_1, kFloatSum, 17, 1, Stores::kCached)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, float32_sum_2_to_8_streaming, kFloatSum, 2, 8, Stores::kStreaming)
    ->Apply(sizes);
BENCHMARK_CAPTURE(reduce_to, float32_sum_2_to_1_small, kFloatSum, 2, 1, Stores::kCached)
    ->Apply(small_sizes);

}  // namespace
}  // namespace dunlin::collective

BENCHMARK_MAIN();
