// Sender, Receiver: the two ends of one lane's messages from one rank to another. A message has one
// of kSlots slots, and the slot's cell, at the receiver, which checks every byte of it, wipes the
// slot and acknowledges before either is used again.
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
// Behind every slot, to notice who writes too far.
inline constexpr std::size_t kGuard = 64;
inline constexpr std::size_t kSlotStride = kLargestMessage + kGuard;
inline constexpr std::byte kWiped{0xEE};

class Sender {
 public:
  // `source`, `target`: kSlots slots each. `cells`: the first of as many at the peer.
  // `acknowledged` is a cell of ours.
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
  // Begins no other message.
  void stop() { is_stopped_ = true; }
  // All that was begun is acknowledged, and all operations are completed.
  bool is_idle() const;
  std::string describe() const;

 private:
  // One message's operations: its puts, a flush, and what notifies.
  struct Slot {
    std::array<transport::Completion, kMostPuts + 2> completions;
    std::size_t used = 0;
  };

  Slot& slot() { return slots_[number_ % kSlots]; }
  bool can_begin() const;
  Status begin();
  // Posts the next operation of the message; ok when that was the last.
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
  std::uint64_t posted_ = 0;  // puts of it
  bool is_flushing_ = false;
  bool is_stopped_ = false;
};

class Receiver {
 public:
  // `slots`: kSlots, wiped before the peer knew of them. `cells`: the first of as many of ours.
  // `acknowledged`: a cell at the peer, told through `back`.
  Receiver(transport::Fabric& fabric, transport::Lane& back, std::uint64_t seed,
           std::span<std::byte> slots, transport::NotifyId cells, transport::NotifyId acknowledged);

  // Checks and acknowledges what has come, one message at most.
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
