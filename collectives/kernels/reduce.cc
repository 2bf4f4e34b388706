#include "collectives/kernels/reduce.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <type_traits>

#include "collectives/kernels/sweep.h"

namespace dunlin::collective {
namespace {

// How many streams one pass reads and writes. Prefetchers and write-combining buffers cannot follow
// more than about ten.
constexpr std::size_t kInputsPerSweep = 8;
constexpr std::size_t kTargetsPerSweep = 4;

// Bytes of a partial result, and of a result that is copied to many targets. They stay in the
// first-level cache while further inputs stream through it. A whole page, so that no page of an
// input is left half read.
constexpr std::size_t kBlockBytes = 4096;

struct Job {
  Reduction reduction;
  std::span<const std::byte* const> inputs;
  std::span<std::byte* const> targets;
  std::size_t divisor = 1;
  bool streams = false;

  std::size_t element() const { return size_of(reduction.type); }
  // Integers are divided here, after the sweeps, which divide floating-point numbers only.
  bool divides_integers() const { return divisor != 1 && is_integer(reduction.type); }
  void set_finish(Sweep& s) const {
    if (divisor == 1 || divides_integers()) return;
    const bool exact = std::has_single_bit(divisor);
    s.finish = exact ? Finish::kMultiply : Finish::kDivide;
    s.factor = exact ? 1 / static_cast<double>(divisor) : static_cast<double>(divisor);
  }
};

// Number of elements before the first one that is aligned for streaming stores in every target.
// Returns `count` if there is no such element.
std::size_t first_aligned(std::span<std::byte* const> targets, std::size_t element,
                          std::size_t count) {
  const auto place = [](const std::byte* target) {
    return reinterpret_cast<std::uintptr_t>(target) % kStreamAlignment;
  };
  const std::size_t first = place(targets[0]);
  for (const std::byte* target : targets) {
    if (place(target) != first) return count;
  }
  return std::min((kStreamAlignment - first) % kStreamAlignment / element, count);
}

// Divides wrapped sums and truncates toward zero. The divisor may exceed the range of the type.
template <typename T>
void divide(std::byte* values, std::size_t count, std::size_t divisor) {
  using Unsigned = std::make_unsigned_t<T>;
  auto* value = reinterpret_cast<T*>(values);
  for (T* const end = value + count; value != end; ++value) {
    const bool negative = *value < 0;
    const auto bits = static_cast<Unsigned>(*value);
    const auto magnitude = negative ? static_cast<Unsigned>(0 - bits) : bits;
    const auto quotient = magnitude < divisor
                              ? Unsigned{0}
                              : static_cast<Unsigned>(magnitude / static_cast<Unsigned>(divisor));
    *value = static_cast<T>(negative ? static_cast<Unsigned>(0 - quotient) : quotient);
  }
}

void divide_integers(DataType type, std::byte* values, std::size_t count, std::size_t divisor) {
  switch (type) {
    case DataType::kInt8:
      return divide<std::int8_t>(values, count, divisor);
    case DataType::kUint8:
      return divide<std::uint8_t>(values, count, divisor);
    case DataType::kInt32:
      return divide<std::int32_t>(values, count, divisor);
    case DataType::kInt64:
      return divide<std::int64_t>(values, count, divisor);
    default:
      assert(!"no integer type");
  }
}

void copy_block(const std::byte* input, std::span<std::byte* const> targets, std::size_t offset,
                std::size_t size, bool streams) {
  if (!streams) {
    for (std::byte* target : targets) {
      if (target + offset != input) std::memcpy(target + offset, input, size);
    }
    return;
  }
  std::array<std::byte*, kTargetsPerSweep> now{};
  for (std::size_t done = 0; done < targets.size(); done += now.size()) {
    const auto some = targets.subspan(done, std::min(now.size(), targets.size() - done));
    std::transform(some.begin(), some.end(), now.begin(),
                   [&](std::byte* target) { return target + offset; });
    Sweep s;
    s.inputs = &input;
    s.input_count = 1;
    s.targets = now.data();
    s.target_count = some.size();
    s.end = size;
    s.streams = true;
    sweep(DataType::kUint8, ReduceOp::kSum, s);
  }
}

// Reduces [begin, end), at most one block, with any number of inputs and targets.
void reduce_block(const Job& job, std::size_t begin, std::size_t end) {
  alignas(kStreamAlignment) std::array<std::byte, kBlockBytes> partial;
  alignas(kStreamAlignment) std::array<std::byte, kBlockBytes> result;
  std::array<const std::byte*, kInputsPerSweep> inputs;
  std::array<std::byte*, kTargetsPerSweep> targets;
  const std::size_t offset = begin * job.element();
  // The last sweep writes to a few targets directly. More of them get copies of `result`.
  const bool direct = job.targets.size() <= targets.size() && !job.divides_integers();

  Sweep s;
  s.inputs = inputs.data();
  s.targets = targets.data();
  s.end = end - begin;
  for (std::size_t done = 0; done < job.inputs.size(); done += s.input_count) {
    s.input_count = std::min(inputs.size(), job.inputs.size() - done);
    std::transform(job.inputs.begin() + done, job.inputs.begin() + done + s.input_count,
                   inputs.begin(), [&](const std::byte* input) { return input + offset; });
    s.partial_in = done == 0 ? nullptr : partial.data();
    s.partial_out = partial.data();
    if (done + s.input_count == job.inputs.size()) {
      s.partial_out = nullptr;
      job.set_finish(s);
      s.target_count = direct ? job.targets.size() : 1;
      if (direct) {
        std::transform(job.targets.begin(), job.targets.end(), targets.begin(),
                       [&](std::byte* target) { return target + offset; });
        s.streams = job.streams;
      } else {
        targets[0] = result.data();
      }
    }
    sweep(job.reduction.type, job.reduction.op, s);
  }
  if (direct) return;
  if (job.divides_integers()) {
    divide_integers(job.reduction.type, result.data(), end - begin, job.divisor);
  }
  copy_block(result.data(), job.targets, offset, (end - begin) * job.element(), job.streams);
}

[[gnu::noinline]] void reduce_by_blocks(const Job& job, std::size_t begin, std::size_t end) {
  // A partial result takes 4 bytes where an element takes 2.
  const std::size_t block = kBlockBytes / std::max<std::size_t>(job.element(), 4);
  for (; begin < end; begin += block) reduce_block(job, begin, std::min(begin + block, end));
}

void reduce_range(const Job& job, std::size_t begin, std::size_t end) {
  if (job.inputs.size() > kInputsPerSweep || job.targets.size() > kTargetsPerSweep ||
      job.divides_integers()) {
    return reduce_by_blocks(job, begin, end);
  }
  Sweep s;
  s.inputs = job.inputs.data();
  s.input_count = job.inputs.size();
  s.targets = job.targets.data();
  s.target_count = job.targets.size();
  s.begin = begin;
  s.end = end;
  s.streams = job.streams;
  job.set_finish(s);
  sweep(job.reduction.type, job.reduction.op, s);
}

}  // namespace

void reduce(Reduction reduction, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> targets, std::size_t count, std::size_t divisor,
            Stores stores) {
  assert(!inputs.empty() && !targets.empty() && divisor != 0);
  Job job{reduction, inputs, targets};
  if (reduction.op == ReduceOp::kAverage) {
    job.reduction.op = ReduceOp::kSum;
    job.divisor = divisor;
  }
  if (inputs.size() == 1 && job.divisor == 1) {
    return copy(inputs[0], targets, count * job.element(), stores);
  }
  if (stores == Stores::kCached) return reduce_range(job, 0, count);
  const std::size_t aligned = first_aligned(targets, job.element(), count);
  reduce_range(job, 0, aligned);
  if (aligned == count) return;
  job.streams = true;
  reduce_range(job, aligned, count);
  hwy::FlushStream();
}

void copy(const std::byte* input, std::span<std::byte* const> targets, std::size_t size_bytes,
          Stores stores) {
  assert(!targets.empty());
  const std::size_t aligned =
      stores == Stores::kCached ? size_bytes : first_aligned(targets, 1, size_bytes);
  const bool streams = aligned < size_bytes;
  // Each block is read once from memory, and from the cache for further targets.
  const std::size_t block = targets.size() == 1 ? size_bytes : kBlockBytes;
  const auto copy_range = [&](std::size_t begin, std::size_t end, bool streaming) {
    for (; begin < end; begin += block) {
      copy_block(input + begin, targets, begin, std::min(block, end - begin), streaming);
    }
  };
  copy_range(0, aligned, false);
  copy_range(aligned, size_bytes, streams);
  if (streams) hwy::FlushStream();
}

}  // namespace dunlin::collective
