// Sender and Receiver: the two ends of one lane's messages from one rank to another. A message uses
// one of kSlots slots at the receiver, and the slot's cell. The receiver checks every byte of the
// message, wipes the slot, and acknowledges before slot and cell are used again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tests/guest/soak/message.h"
#include "transports/fabric.h"

namespace dunlin::soak {

inline constexpr std::uint64_t kSlots = 2;
// Bytes behind every slot, which detect writes beyond it.
inline constexpr std::size_t kGuard = 64;
inline constexpr std::size_t kSlotStride = kLargestMessage + kGuard;
inline constexpr std::byte kWiped{0xEE};

class Sender {
 public:
  // `source` and `target` have kSlots slots each. `cells` is the first of kSlots cells at the peer.
  // `acknowledged` is a cell of this rank.
  Sender(transport::Fabric& fabric, transport::Lane& lane, std::uint64_t seed,
         transport::LocalSlice source, transport::RemoteSlice target, transport::NotifyId cells,
         transport::NotifyId acknowledged)
      : fabric_(fabric),
        lane_(lane),
        seed_(seed),
        source_(source),
        target_(target),
        cells_(cells),
        acknowledged_(acknowledged) {}

  // Posts what can be posted.
  Status step();
  // Begins no further message.
  void stop() { is_stopped_ = true; }
  // Whether every message is acknowledged, and every operation has completed.
  bool is_idle() const;
  std::string describe() const;

 private:
  // The operations of one message: its puts, a flush, and the notification.
  struct Slot {
    std::array<transport::Completion, kMostPuts + 2> completions;
    std::size_t used = 0;
  };

  Slot& slot() { return slots_[number_ % kSlots]; }
  bool can_begin() const;
  Status begin();
  // Posts the next operation of the message. Returns ok if that was the last.
  Status post_next();
  Status post_put();
  Status post_notification();
  transport::Completion* next_completion();

  transport::Fabric& fabric_;
  transport::Lane& lane_;
  const std::uint64_t seed_;
  transport::LocalSlice source_;
  transport::RemoteSlice target_;
  transport::NotifyId cells_;
  transport::NotifyId acknowledged_;
  std::array<Slot, kSlots> slots_;
  std::uint64_t number_ = 0;  // of the next message, or of the one that is being posted
  std::optional<Message> message_;
  std::uint64_t posted_ = 0;  // puts of this message
  bool is_flushing_ = false;
  bool is_stopped_ = false;
};

class Receiver {
 public:
  // `slots`: kSlots slots, wiped before the peer knew of them. `cells`: the first of kSlots cells
  // of this rank. `acknowledged`: a cell at the peer, which lane `back` notifies.
  Receiver(transport::Fabric& fabric, transport::Lane& back, std::uint64_t seed,
           std::span<std::byte> slots, transport::NotifyId cells, transport::NotifyId acknowledged);

  // Checks and acknowledges at most one message that has arrived.
  Status step();
  bool is_idle() const { return told_ == number_; }
  std::uint64_t messages() const { return number_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  Status take(const transport::NotifyCell& cell, std::uint64_t sequence);
  Status acknowledge();
  Status check(const Message& message, const transport::NotifyCell& cell);
  Status check_slot(const Message& message);

  transport::Fabric& fabric_;
  transport::Lane& back_;
  const std::uint64_t seed_;
  std::span<std::byte> slots_;
  transport::NotifyId cells_;
  transport::NotifyId acknowledged_;
  std::uint64_t number_ = 0;  // of the next message
  std::uint64_t told_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace dunlin::soak
