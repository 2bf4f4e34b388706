// DepositSender and DepositReceiver: the two ends of a window's edge. Deposits travel along it:
// tensors that replace a buffer of the receiver, or are added to it. No rank waits for another.
//
// The edge is a NOTIFY-ACK channel whose slots hold a header and a whole tensor. The channel has no
// credit while the receiver computes and takes nothing over. Meanwhile the sender merges deposits
// into one pending message: a put replaces what was pending, and an accumulate adds to it. So any
// number of deposits takes the memory of `depth` + 1 messages at the sender, and the receiver's
// buffer gets the value that it would have if each deposit had arrived by itself.
//
// Nothing blocks or allocates. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>

#include "transports/channel/queue.h"

namespace dunlin::collective {

enum class DepositKind : std::uint32_t {
  kPut = 1,         // replaces what is in the buffer
  kAccumulate = 2,  // is added to it
};

// Precedes the tensor in a slot. Numbers are little-endian, as x86-64 and AArch64 under Linux store
// them.
struct DepositHeader {
  static constexpr std::uint32_t kVersion = 1;
  std::uint32_t version = kVersion;
  DepositKind kind = DepositKind::kPut;
  std::uint64_t deposits = 0;  // how many were merged into this one
  double p = 0;                // push-sum's weight, treated as an element of the tensor
  std::byte reserved[40] = {};
};
static_assert(sizeof(DepositHeader) == transport::kCacheLine &&
              std::is_trivially_copyable_v<DepositHeader>);

constexpr std::size_t deposit_bytes(std::size_t tensor_bytes) {
  return sizeof(DepositHeader) + tensor_bytes;
}

// The memory of one message, from its first deposit until it is acknowledged. The lane may access
// it for longer than the sender lives.
struct DepositStaging {
  transport::LocalSlice slice;
  transport::Completion completion;
  bool is_posted = false;
  std::uint64_t first_operation = 0;  // of the operations that were merged
  std::uint64_t last_operation = 0;

  // Whether the lane is done with it.
  bool is_free() const { return !is_posted || completion.is_done(); }
};

// A range of the numbers of window operations. Both ends are included.
struct OperationRange {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t last = 0;
  bool contains(std::uint64_t number) const { return first <= number && number <= last; }
};

template <typename T>  // float, double
class DepositSender {
 public:
  // `exchange` is connected. `ring` has depth + 1 elements, whose slices have
  // deposit_bytes(count * sizeof(T)).
  DepositSender(transport::SlotExchange& exchange, transport::OutSlots& edge,
                std::span<DepositStaging> ring)
      : queue_(exchange, edge), ring_(ring) {}

  Rank peer() const { return queue_.peer(); }
  // Deposits weight * self and weight * p for an operation, whose number is not below that of the
  // last one. Do not call it once loss() is an error.
  void deposit(DepositKind kind, std::uint64_t operation, double weight, std::span<const T> self,
               double p);
  // Sends the pending message; kBusy while there is no credit for it. After an error the
  // outstanding deposits are lost, and every later call returns the same error.
  Status progress();
  // Ends the sender: its outstanding deposits are lost for this reason.
  void lose(Status why);

  // Whether the receiver has yet to take over something that was deposited.
  bool is_outstanding() const {
    return !loss_.is_error() && (has_pending_ || acknowledged() < queue_.sent());
  }
  // The operations whose deposits are outstanding; nullopt: there are none.
  std::optional<OperationRange> outstanding() const;
  // Why deposits were lost, or would be; ok: the sender works.
  const Status& loss() const { return loss_; }
  const OperationRange& lost() const { return lost_; }

 private:
  std::uint64_t acknowledged() const { return queue_.acknowledged(); }
  DepositStaging& pending() { return ring_[queue_.sent() % ring_.size()]; }
  // The staging memory of a message; messages are counted from 0.
  const DepositStaging& of(std::uint64_t message) const { return ring_[message % ring_.size()]; }
  Status check_completions() const;

  transport::SendQueue queue_;
  std::span<DepositStaging> ring_;
  bool has_pending_ = false;
  Status loss_;
  OperationRange lost_;
};

template <typename T>
class DepositReceiver {
 public:
  // `exchange` is connected. `buffer` outlives this object.
  DepositReceiver(transport::SlotExchange& exchange, transport::InSlots& edge, std::span<T> buffer,
                  bool is_zero)
      : queue_(exchange, edge),
        depth_(exchange.options().depth),
        buffer_(buffer),
        is_zero_(is_zero) {}

  Rank peer() const { return queue_.peer(); }
  // Takes over the deposits that have arrived, and releases their slots. kCorrupted if a message is
  // no deposit; every later call returns the same error.
  Status progress();

  double p() const { return p_; }
  std::uint64_t version() const { return version_; }  // deposits since clear_version()
  void clear_version() { version_ = 0; }
  // Whether the buffer counts as zero, whatever its memory holds.
  bool is_zero() const { return is_zero_; }
  std::span<const T> buffer();
  // Has the effect of a put of weight * tensor and weight * p by the peer.
  void replace(std::span<const T> tensor, double p, double weight);
  void reset() {
    is_zero_ = true;
    p_ = 0;
  }

 private:
  Status take(const transport::Message& message);

  transport::ReceiveQueue queue_;
  std::uint32_t depth_;
  std::span<T> buffer_;
  bool is_zero_;
  double p_ = 0;
  std::uint64_t version_ = 0;
  Status error_;
};

// tensor *= factor.
template <typename T>
void scale(std::span<T> tensor, double factor);

extern template class DepositSender<float>;
extern template class DepositSender<double>;
extern template class DepositReceiver<float>;
extern template class DepositReceiver<double>;

}  // namespace dunlin::collective
