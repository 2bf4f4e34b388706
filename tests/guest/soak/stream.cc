#include "tests/guest/soak/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace dunlin::soak {

using transport::Completion;
using transport::NotifyCell;
using transport::Visibility;

// Sender -----------------------------------------------------------------------------------------

Status Sender::step() {
  for (;;) {
    if (!message_) {
      if (is_stopped_ || !can_begin()) return Status::ok();
      DUNLIN_TRY(begin());
    }
    Status status = post_next();
    if (status.is_busy()) return Status::ok();
    if (status.is_error()) {
      return std::move(status).with_context(
          fmt::format("message {} of {} bytes", number_, message_->size));
    }
    message_.reset();
    ++number_;
  }
}

bool Sender::can_begin() const {
  const Slot& slot = slots_[number_ % kSlots];
  const bool is_released =
      std::all_of(slot.completions.begin(), slot.completions.begin() + static_cast<long>(slot.used),
                  [](const Completion& one) { return one.is_done(); });
  return is_released && number_ < fabric_.board().sequence(acknowledged_) + kSlots;
}

Status Sender::begin() {
  for (std::size_t i = 0; i < slot().used; ++i) {
    DUNLIN_TRY(slot().completions[i].status());
    slot().completions[i].reset();
  }
  slot().used = 0;
  message_ = message_of(seed_, number_);
  posted_ = 0;
  is_flushing_ = false;
  if (message_->form != Form::kInline)
    fill({source_.data() + number_ % kSlots * kSlotStride, message_->size}, message_->seed);
  return Status::ok();
}

Completion* Sender::next_completion() {
  return &slot().completions[slot().used];
}

Status Sender::post_next() {
  while (posted_ < message_->puts) DUNLIN_TRY(post_put());
  if (message_->form == Form::kFlushed) {
    if (!is_flushing_) {
      DUNLIN_TRY(lane_.flush(Visibility::kRemote, next_completion()));
      ++slot().used;
      is_flushing_ = true;
    }
    const Completion& flush = slot().completions[slot().used - 1];
    if (!flush.is_done()) return Status::busy();
    DUNLIN_TRY(flush.status());
  }
  DUNLIN_TRY(post_notification());
  ++slot().used;
  return Status::ok();
}

Status Sender::post_put() {
  const std::size_t place = number_ % kSlots * kSlotStride;
  const std::size_t offset = message_->offset(posted_);
  const std::size_t size = message_->end(posted_) - offset;
  DUNLIN_ASSIGN(const auto from, source_.slice(place + offset, size));
  DUNLIN_ASSIGN(const auto to, target_.slice(place + offset, size));
  // Operations before a flush need no completion.
  const bool is_asked = message_->form != Form::kFlushed;
  DUNLIN_TRY(lane_.put(from, to, is_asked ? next_completion() : nullptr));
  if (is_asked) ++slot().used;
  ++posted_;
  return Status::ok();
}

Status Sender::post_notification() {
  std::array<std::byte, transport::kInlineBytes> room;
  const auto cell = cell_at(cells_, static_cast<std::uint32_t>(number_ % kSlots));
  const auto notification = notification_of(*message_, cell, number_ + 1, room);
  if (!message_->is_last_part_announced()) return lane_.notify(notification, next_completion());
  const std::size_t place = number_ % kSlots * kSlotStride;
  const std::size_t offset = message_->offset(message_->puts);
  DUNLIN_ASSIGN(const auto from, source_.slice(place + offset, message_->size - offset));
  DUNLIN_ASSIGN(const auto to, target_.slice(place + offset, message_->size - offset));
  return lane_.put_notify(from, to, notification, next_completion());
}

bool Sender::is_idle() const {
  const bool has_completed = std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
    return std::all_of(slot.completions.begin(),
                       slot.completions.begin() + static_cast<long>(slot.used),
                       [](const Completion& one) { return one.is_done(); });
  });
  return !message_ && has_completed && fabric_.board().sequence(acknowledged_) == number_;
}

std::string Sender::describe() const {
  return fmt::format("the acknowledgment of message {} (it has {})", number_,
                     fabric_.board().sequence(acknowledged_));
}

// Receiver ---------------------------------------------------------------------------------------

Receiver::Receiver(transport::Fabric& fabric, transport::Lane& back, std::uint64_t seed,
                   std::span<std::byte> slots, transport::NotifyId cells,
                   transport::NotifyId acknowledged)
    : fabric_(fabric),
      back_(back),
      seed_(seed),
      slots_(slots),
      cells_(cells),
      acknowledged_(acknowledged) {}

Status Receiver::step() {
  const auto slot = static_cast<std::uint32_t>(number_ % kSlots);
  const NotifyCell& cell = fabric_.board().cell(cell_at(cells_, slot));
  const std::uint64_t sequence = cell.sequence.load(std::memory_order_acquire);
  if (sequence > number_) DUNLIN_TRY(take(cell, sequence));
  return acknowledge();
}

Status Receiver::take(const NotifyCell& cell, std::uint64_t sequence) {
  const Message message = message_of(seed_, number_);
  Status status = sequence == number_ + 1
                      ? check(message, cell)
                      : Status(Code::kCorrupted, fmt::format("announced as {}", sequence));
  if (!status.is_ok()) {
    return std::move(status).with_context(fmt::format("message {} of {} bytes in form {}", number_,
                                                      message.size,
                                                      static_cast<int>(message.form)));
  }
  bytes_ += message.size;
  ++number_;
  return Status::ok();
}

Status Receiver::acknowledge() {
  if (told_ == number_) return Status::ok();
  transport::Notification acknowledgment;
  acknowledgment.id = acknowledged_;
  acknowledgment.sequence = number_;
  Status status = back_.notify(acknowledgment, nullptr);
  if (status.is_ok()) told_ = number_;
  return status.is_busy() ? Status::ok() : status;
}

Status Receiver::check(const Message& message, const NotifyCell& cell) {
  std::array<std::byte, transport::kInlineBytes> room;
  const auto expected = notification_of(message, {}, number_ + 1, room);
  const std::span<const std::byte> carried(cell.inline_data, cell.inline_size);
  if (cell.tag != expected.tag || cell.length != expected.length ||
      !std::equal(carried.begin(), carried.end(), expected.inline_data.begin(),
                  expected.inline_data.end())) {
    return {Code::kCorrupted,
            fmt::format("the notification says tag {:x}, length {}, {} bytes inline, not {:x}, {}, "
                        "{} or other ones",
                        cell.tag, cell.length, cell.inline_size, expected.tag, expected.length,
                        expected.inline_data.size())};
  }
  return check_slot(message);
}

Status Receiver::check_slot(const Message& message) {
  const std::size_t size = message.form == Form::kInline ? 0 : message.size;
  const auto slot = slots_.subspan(number_ % kSlots * kSlotStride, kSlotStride);
  if (const auto wrong = find_difference(slot.first(size), message.seed)) {
    return {Code::kCorrupted,
            fmt::format("byte {} is {:02x}", *wrong, static_cast<unsigned>(slot[*wrong]))};
  }
  const auto guard = slot.subspan(size, kGuard);
  if (std::any_of(guard.begin(), guard.end(), [](std::byte one) { return one != kWiped; }))
    return {Code::kCorrupted, "what lies behind its bytes was written to"};
  std::fill_n(slot.begin(), size, kWiped);
  return Status::ok();
}

}  // namespace dunlin::soak
