// Compares the fused weighted average with memcpy, which shows what the memory can do, and with the
// same sum as a plain loop over the inputs with one pass for each, which it replaces.
//
// GB/s counts the bytes that must move: k inputs and the model are read, and the model is written.
// For memcpy, the read and the write are counted in the same way.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "collectives/kernels/average.h"

namespace dunlin::collective {
namespace {

template <typename T>
struct Operands {
  explicit Operands(const benchmark::State& state)
      : model(static_cast<std::size_t>(state.range(1)) / sizeof(T), T(1)),
        buffers(static_cast<std::size_t>(state.range(0)), model),
        weights(buffers.size(), T(1) / static_cast<T>(buffers.size() + 1)) {
    for (const auto& buffer : buffers) inputs.push_back(buffer.data());
  }
  std::vector<T> model;
  std::vector<std::vector<T>> buffers;
  std::vector<T> weights;
  std::vector<const T*> inputs;
};

void count_bytes(benchmark::State& state, std::int64_t streams) {
  state.SetBytesProcessed(state.iterations() * streams * state.range(1));
}

template <typename T>
void fused(benchmark::State& state) {
  Operands<T> operands(state);
  for (auto _ : state) {
    weighted_average(std::span<T>(operands.model), operands.weights[0], operands.inputs,
                     std::span<const T>(operands.weights));
    benchmark::ClobberMemory();
  }
  count_bytes(state, state.range(0) + 2);
}

template <typename T>
void plain_loop(benchmark::State& state) {
  Operands<T> operands(state);
  for (auto _ : state) {
    for (T& value : operands.model) value *= operands.weights[0];
    for (std::size_t k = 0; k < operands.inputs.size(); ++k) {
      for (std::size_t i = 0; i < operands.model.size(); ++i) {
        operands.model[i] += operands.weights[k] * operands.inputs[k][i];
      }
    }
    benchmark::ClobberMemory();
  }
  count_bytes(state, state.range(0) + 2);
}

void memcpy_limit(benchmark::State& state) {
  const std::vector<char> from(static_cast<std::size_t>(state.range(1)), 'x');
  std::vector<char> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2);
}

constexpr std::int64_t kInL2 = 32 << 10;     // a small model
constexpr std::int64_t kModel = 47'236 * 8;  // a linear model of RCV1's features, float64
constexpr std::int64_t kInMemory = 32 << 20;

BENCHMARK(memcpy_limit)->ArgNames({"k", "bytes"})->ArgsProduct({{1}, {kInL2, kModel, kInMemory}});
BENCHMARK(fused<float>)
    ->ArgNames({"k", "bytes"})
    ->ArgsProduct({{1, 2, 7, 20}, {kInL2, kModel, kInMemory}});
BENCHMARK(fused<double>)
    ->ArgNames({"k", "bytes"})
    ->ArgsProduct({{1, 2, 7, 20}, {kInL2, kModel, kInMemory}});
BENCHMARK(plain_loop<float>)
    ->ArgNames({"k", "bytes"})
    ->ArgsProduct({{1, 2, 7, 20}, {kInL2, kModel, kInMemory}});

}  // namespace
}  // namespace dunlin::collective

BENCHMARK_MAIN();
