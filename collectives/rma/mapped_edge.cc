#include "collectives/rma/mapped_edge.h"

#include <algorithm>

namespace dunlin::collective {
namespace {

// Tensors from this size on are written with streaming stores: the two buffers and the tensor of
// the writer then exceed the third-level caches of common servers (16 to 32 MiB), and the lines of
// the buffer would be read for nothing before they are written.
constexpr std::size_t kStreamFromBytes = 8 << 20;

Stores stores_for(std::size_t tensor_bytes) {
  return tensor_bytes < kStreamFromBytes ? Stores::kCached : Stores::kStreaming;
}

std::uint32_t neither_of(std::uint32_t a, std::uint32_t b) {
  // The numbers of the three buffers add up to 3.
  if (a != b) return 3 - a - b;
  return a == 0 ? 1 : 0;
}

}  // namespace

EdgeMemory EdgeMemory::of(std::span<std::byte* const> buffers, std::size_t tensor_bytes) {
  EdgeMemory memory;
  memory.tensor_bytes = tensor_bytes;
  std::copy_n(buffers.begin(), kBuffers, memory.buffers.begin());
  for (std::size_t i = 0; i < kBuffers; ++i)
    memory.tensors[i] = memory.buffers[i] + sizeof(DepositHeader);
  return memory;
}

template <typename T>
void MappedWriter<T>::write(DepositKind kind, double weight, std::span<const T> self, double p) {
  // The acquire pairs with the release in hold(): the reader no longer reads what it held before.
  seen_ = EdgeState::of(memory_.word().load(std::memory_order_acquire));
  filled_ = neither_of(seen_.current, seen_.held);
  const std::span<T> target = memory_.tensor<T>(filled_);
  const Stores stores = stores_for(memory_.tensor_bytes);
  DepositHeader& header = memory_.header(filled_);
  const DepositHeader* const before = seen_.is_empty ? nullptr : &memory_.header(seen_.current);
  header.deposits = (before == nullptr ? 0 : before->deposits) + 1;
  if (before != nullptr && kind == DepositKind::kAccumulate) {
    header.kind = before->kind;
    header.p = before->p + weight * p;
    passes_->add_scaled(target, memory_.tensor<const T>(seen_.current).data(),
                        static_cast<T>(weight), self.data(), stores);
  } else {
    header.kind = kind;
    header.p = weight * p;
    passes_->copy_scaled(target, static_cast<T>(weight), self.data(), stores);
  }
}

template <typename T>
bool MappedWriter<T>::publish() {
  std::uint64_t expected = seen_.word();
  for (;;) {
    const EdgeState now = EdgeState::of(expected);
    // The reader has taken the buffer.
    if (now.is_empty != seen_.is_empty) return false;
    // The release pairs with the acquire in hold(). The reader may have held the current buffer
    // since write(), but never holds the one that was filled.
    const EdgeState next{filled_, now.held, false};
    if (memory_.word().compare_exchange_weak(expected, next.word(), std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
      return true;
    }
  }
}

template <typename T>
const DepositHeader* MappedReader<T>::hold(bool takes) {
  const auto word = memory_.word();
  std::uint64_t expected = word.load(std::memory_order_acquire);
  for (;;) {
    const EdgeState now = EdgeState::of(expected);
    if (now.is_empty) return nullptr;
    const EdgeState next{now.current, now.current, takes};
    // The acquire pairs with the release in publish(), and the release with the acquire in write().
    if (next.word() == expected ||
        word.compare_exchange_weak(expected, next.word(), std::memory_order_acq_rel,
                                   std::memory_order_acquire)) {
      held_ = next.held;
      return &memory_.header(held_);
    }
  }
}

template <typename T>
const DepositHeader* MappedReader<T>::hold() {
  return hold(false);
}

template <typename T>
const DepositHeader* MappedReader<T>::take() {
  return hold(true);
}

template class MappedWriter<float>;
template class MappedWriter<double>;
template class MappedReader<float>;
template class MappedReader<double>;

}  // namespace dunlin::collective
