// MappedWriter and MappedReader: the two ends of a window's edge whose writer has mapped the
// reader's memory, as ranks of one host have. A deposit is in the reader's memory when the call
// that makes it returns, and no call of the reader is needed.
//
// The reader's memory has three buffers, each with a DepositHeader and a tensor. A word names the
// current buffer, which has what was deposited since the reader last took it, and the buffer that
// the reader holds in order to read it. The writer fills the third buffer, which is neither, and
// makes it the current one with one compare-and-swap. To accumulate, it reads the current buffer
// and writes the sum to the third one. The reader holds the current buffer with one
// compare-and-swap; if it takes the buffer, the same one marks the edge as empty. Therefore:
//   - The reader sees either a whole deposit, with its p and its count, or none of it.
//   - Neither end ever waits for the other. If a writer dies or is stopped within a deposit, the
//     deposit has no effect, and the reader goes on with what was there before.
//   - Nothing is lost or counted twice. If the reader takes the buffer to which the writer adds,
//     the writer's compare-and-swap fails, and it deposits its own part alone. This happens at most
//     once in a deposit, because the edge is then empty and the reader has nothing to take.
//
// The cost of an accumulate is one pass that reads two tensors and writes a third. An addition in
// place would write one of the two that it reads. It would move three quarters of the bytes between
// caches and memory, but a reader would have to wait for its end, or would see half of it.
//
// The tensors may be in the memory of a GPU. Then the GPU of each end accesses them, and the
// writer publishes a deposit when its pass is complete. The word and the headers are in host
// memory.
//
// This is the only place where the buffers are accessed. The classes hold addresses only; the
// memory outlives them. Each has one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/rma/deposit_header.h"
#include "collectives/rma/tensor_passes.h"

namespace dunlin::collective {

// The memory of an edge, as one end has mapped it. It begins as zeros: then the edge is empty.
struct EdgeMemory {
  static constexpr std::size_t kBuffers = 3;

  // The buffers are in host memory. Each begins on a cache line and has buffer_bytes().
  std::array<std::byte*, kBuffers> buffers{};
  // Behind the headers of the buffers, or in the memory of a GPU.
  std::array<std::byte*, kBuffers> tensors{};
  std::size_t tensor_bytes = 0;

  // Describes an edge whose tensors are in host memory.
  static EdgeMemory of(std::span<std::byte* const> buffers, std::size_t tensor_bytes);

  // A deposit and, on a cache line of its own, the word. That of the first buffer is used.
  static constexpr std::size_t buffer_bytes(std::size_t tensor_bytes) {
    return word_offset(tensor_bytes) + transport::kCacheLine;
  }

  DepositHeader& header(std::size_t buffer) const {
    return *reinterpret_cast<DepositHeader*>(buffers[buffer]);
  }
  template <typename T>
  std::span<T> tensor(std::size_t buffer) const {
    return {reinterpret_cast<T*>(tensors[buffer]), tensor_bytes / sizeof(T)};
  }
  std::atomic_ref<std::uint64_t> word() const {
    return std::atomic_ref(
        *reinterpret_cast<std::uint64_t*>(buffers[0] + word_offset(tensor_bytes)));
  }

 private:
  static constexpr std::size_t word_offset(std::size_t tensor_bytes) {
    return transport::whole_cache_lines(deposit_bytes(tensor_bytes));
  }
};

// The value of the word.
struct EdgeState {
  std::uint32_t current = 0;
  std::uint32_t held = 0;
  bool is_empty = true;  // nothing was deposited since the reader last took the current buffer

  static EdgeState of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word & 3), static_cast<std::uint32_t>(word >> 2 & 3),
            (word & 16) == 0};
  }
  std::uint64_t word() const {
    return std::uint64_t{current} | std::uint64_t{held} << 2 | (is_empty ? 0 : 16);
  }
};

template <typename T>  // float, double
class MappedWriter {
 public:
  // The passes outlive the writer.
  MappedWriter(const EdgeMemory& memory, TensorPasses<T>& passes)
      : memory_(memory), passes_(&passes) {}

  // The two halves of a deposit of weight * self and weight * p. write() fills a buffer. Once the
  // passes have finished, publish() makes it the current one, so that the reader can see it, unless
  // the reader has taken the buffer that was current at the time of write(): then it returns false,
  // and write() has to be repeated.
  void write(DepositKind kind, double weight, std::span<const T> self, double p);
  bool publish();

 private:
  EdgeMemory memory_;
  TensorPasses<T>* passes_;
  EdgeState seen_;            // by write()
  std::uint32_t filled_ = 0;  // by write()
};

template <typename T>  // float, double
class MappedReader {
 public:
  explicit MappedReader(const EdgeMemory& memory) : memory_(memory) {}

  // Holds what has been deposited since the last take(), and returns its header; null: nothing.
  // Header and tensor() do not change before the next hold() or take() that does not return null.
  const DepositHeader* hold();
  // The same, and the edge is empty afterwards.
  const DepositHeader* take();
  // The tensor of the buffer that is held.
  std::span<const T> tensor() const { return memory_.tensor<const T>(held_); }

 private:
  const DepositHeader* hold(bool takes);

  EdgeMemory memory_;
  std::uint32_t held_ = 0;
};

extern template class MappedWriter<float>;
extern template class MappedWriter<double>;
extern template class MappedReader<float>;
extern template class MappedReader<double>;

}  // namespace dunlin::collective
