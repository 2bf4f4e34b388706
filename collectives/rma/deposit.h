// DepositSender and DepositReceiver: the two ends of a window's edge, along which deposits (tensors
// that are put over, or added to, a buffer of the receiver) travel without anybody waiting.
//
// They sit on a NOTIFY-ACK channel whose slots hold a header and a whole tensor. While the channel
// has no credit, because the receiver computes and looks at nothing, the sender merges what is
// deposited into one pending message: a put forgets what was pending, an accumulate adds to it. So
// any number of deposits takes the memory of `depth` + 1 messages at the sender, and what arrives
// is what would have been in the buffer, had every deposit arrived by itself. Nothing blocks or
// allocates. Owner thread only.
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
  kPut = 1,         // takes the place of what is in the buffer
  kAccumulate = 2,  // is added to it
};

// What stands before the tensor in a slot; in the byte order of x86-64 and AArch64 as Linux runs
// them, little-endian.
struct DepositHeader {
  static constexpr std::uint32_t kVersion = 1;
  std::uint32_t version = kVersion;
  DepositKind kind = DepositKind::kPut;
  std::uint64_t deposits = 0;  // so many were merged
  double p = 0;                // push-sum's weight, which goes the way of the tensor
  std::byte reserved[40] = {};
};
static_assert(sizeof(DepositHeader) == transport::kCacheLine &&
              std::is_trivially_copyable_v<DepositHeader>);

constexpr std::size_t deposit_bytes(std::size_t tensor_bytes) {
  return sizeof(DepositHeader) + tensor_bytes;
}

// Memory of one message, from its first deposit until it is acknowledged. The lane may hold on to
// it for longer than the sender lives.
struct DepositStaging {
  transport::LocalSlice slice;
  transport::Completion completion;
  bool is_posted = false;
  std::uint64_t first_operation = 0;  // of those that were merged
  std::uint64_t last_operation = 0;

  // The lane is done with it.
  bool is_free() const { return !is_posted || completion.is_done(); }
};

// A range of operations' numbers, both included.
struct Operations {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t last = 0;
  bool contains(std::uint64_t number) const { return first <= number && number <= last; }
};

template <typename T>  // float, double
class DepositSender {
 public:
  // Of an exchange that is connected. `ring`: depth + 1 of them, with slices of
  // deposit_bytes(count * sizeof(T)).
  DepositSender(transport::SlotExchange& exchange, transport::OutSlots& edge,
                std::span<DepositStaging> ring)
      : queue_(exchange, edge), ring_(ring) {}

  Rank peer() const { return queue_.peer(); }
  // Deposits weight * self and weight * p, in the name of an operation, whose numbers grow. Not
  // after a loss.
  void deposit(DepositKind kind, std::uint64_t operation, double weight, std::span<const T> self,
               double p);
  // Sends what is pending, if it can be; kBusy while it can't. An error: what was outstanding is
  // lost, and the sender is of no use any more; it stays.
  Status progress();
  // Gives up: what is outstanding is lost, for this reason.
  void lose(Status why);

  // Whether something that was deposited isn't taken over by the receiver's end yet.
  bool is_outstanding() const {
    return !loss_.is_error() && (has_pending_ || acknowledged() < queue_.sent());
  }
  // Deposits of these operations are outstanding.
  std::optional<Operations> outstanding() const;
  // Why deposits were lost, or would be; ok: none.
  const Status& loss() const { return loss_; }
  const Operations& lost() const { return lost_; }

 private:
  std::uint64_t acknowledged() const { return queue_.acknowledged(); }
  DepositStaging& pending() { return ring_[queue_.sent() % ring_.size()]; }
  // Of a message, counted from 0.
  const DepositStaging& of(std::uint64_t message) const { return ring_[message % ring_.size()]; }
  Status look_at_completions() const;

  transport::SendQueue queue_;
  std::span<DepositStaging> ring_;
  bool has_pending_ = false;
  Status loss_;
  Operations lost_;
};

template <typename T>
class DepositReceiver {
 public:
  // Of an exchange that is connected. `buffer` outlives it.
  DepositReceiver(transport::SlotExchange& exchange, transport::InSlots& edge, std::span<T> buffer,
                  bool is_zero)
      : queue_(exchange, edge),
        depth_(exchange.options().depth),
        buffer_(buffer),
        is_zero_(is_zero) {}

  Rank peer() const { return queue_.peer(); }
  // Takes over what has arrived, and gives the slots back. Errors (what came is no deposit) stay.
  Status progress();

  double p() const { return p_; }
  std::uint64_t version() const { return version_; }  // deposits since clear_version()
  void clear_version() { version_ = 0; }
  // Whether the buffer counts as zero, whatever its memory holds.
  bool is_zero() const { return is_zero_; }
  std::span<const T> buffer();
  // What the peer would do with a put of weight * tensor and weight * p.
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
