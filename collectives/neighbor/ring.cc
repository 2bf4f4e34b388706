#include "collectives/neighbor/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace dunlin::collective::neighbor {
namespace {

using transport::kInlineBytes;

std::size_t size_of(Ring::Pieces pieces) {
  std::size_t size = 0;
  for (const std::span<const std::byte> piece : pieces) size += piece.size();
  return size;
}

void write(std::byte* to, Ring::Pieces pieces) {
  for (const std::span<const std::byte> piece : pieces) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
}

}  // namespace

Result<std::unique_ptr<Ring>> Ring::prepare(transport::Fabric& fabric, const RingOptions& options) {
  std::unique_ptr<Ring> ring(new Ring(fabric, options));
  transport::SlotOptions slots;
  const auto [low, high] = std::minmax({fabric.rank(), options.peer});
  slots.name = fmt::format("neighbors/{}/{}-{}", options.name, low.value(), high.value());
  slots.in = slots.out = {options.peer};
  slots.slot_bytes = options.slot_bytes;
  slots.depth = options.depth;
  if (options.gpu != nullptr) {
    slots.gpu = options.gpu->driver();
    slots.gpu_device = options.gpu->device();
  }
  DUNLIN_ASSIGN(ring->exchange_, transport::SlotExchange::prepare(fabric, std::move(slots)));
  return ring;
}

Status Ring::connect() {
  if (is_connected()) return Status::ok();
  const TimePoint now = fabric_.clock().now();
  if (!lookups_.is_due(now)) return Status::busy();
  if (const Status there = exchange_->check_neighbors(); !there.is_ok()) {
    lookups_.put_off(now);
    return there;
  }
  DUNLIN_TRY(exchange_->connect());
  const std::size_t depth = exchange_->options().depth;
  transport::OutSlots& out = exchange_->out()[0];
  if (mapped_slots() == nullptr) {
    DUNLIN_ASSIGN(staging_, gpu_ == nullptr
                                ? fabric_.allocate(slot_bytes() * depth)
                                : fabric_.allocate_on_gpu(gpu_->driver(), gpu_->device(),
                                                          slot_bytes() * depth));
    staged_ = std::make_unique<transport::Completion[]>(depth);
    for (std::size_t slot = 0; slot < depth; ++slot) staged_[slot].fire(Status::ok());
  }
  sender_.emplace(*exchange_, out);
  receiver_.emplace(*exchange_, exchange_->in()[0]);
  return Status::ok();
}

bool Ring::has_heard() const {
  return fabric_.board().sequence(exchange_->in()[0].first_cell) != 0;
}

std::byte* Ring::mapped_slots() const {
  const transport::RemoteRegion* const region = exchange_->out()[0].region.get();
  if (region == nullptr) return nullptr;
  return gpu_ == nullptr ? region->mapped() : region->gpu_mapped(gpu_->device());
}

Status Ring::send(std::uint64_t tag, Pieces pieces) {
  if (gpu_ != nullptr) return send_from_gpu(tag, pieces.front());
  const std::size_t size = size_of(pieces);
  if (size <= kInlineBytes) {
    std::byte message[kInlineBytes];
    write(message, pieces);
    return sender_->try_send_inline({message, size}, tag);
  }
  if (size > slot_bytes()) {
    return {Code::kOutOfRange,
            fmt::format("a message of {} bytes for slots of {}", size, slot_bytes())};
  }
  if (staging_ != nullptr) return send_staged(tag, pieces, size);
  std::byte* const slot = sender_->mapped_slot();
  if (slot == nullptr) return Status::busy();
  write(slot, pieces);
  return sender_->announce(size, tag);
}

Status Ring::send_staged(std::uint64_t tag, Pieces pieces, std::size_t size) {
  const std::size_t slot = sender_->sent() % exchange_->options().depth;
  if (!sender_->has_credit() || !staged_[slot].is_done()) return Status::busy();
  DUNLIN_TRY(staged_[slot].status());
  DUNLIN_ASSIGN(const transport::LocalSlice place, staging_->slice(slot * slot_bytes(), size));
  write(place.data(), pieces);
  staged_[slot].reset();
  Status status = sender_->try_send(place, tag, &staged_[slot]);
  if (!status.is_ok()) staged_[slot].fire(Status::ok());
  return status;
}

Status Ring::send_from_gpu(std::uint64_t tag, std::span<const std::byte> message) {
  if (!failure_.is_ok()) return failure_;
  const std::size_t depth = exchange_->options().depth;
  if (taken() - sender_->acknowledged() >= depth) return Status::busy();
  const std::size_t slot = taken() % depth;
  std::byte* to = nullptr;
  if (staging_ != nullptr) {
    if (!staged_[slot].is_done()) return Status::busy();
    DUNLIN_TRY(staged_[slot].status());
    to = staging_->data() + slot * slot_bytes();
  } else {
    to = mapped_slots() + exchange_->out()[0].slots[slot].offset();
  }
  DUNLIN_TRY(gpu_->copy(to, message.data(), message.size()));
  copies_.push_back({gpu_->started(), tag, message.size()});
  return Status::ok();
}

Status Ring::announce(const Copy& copied) {
  if (staging_ == nullptr) return sender_->announce(copied.size, copied.tag);
  const std::size_t slot = sender_->sent() % exchange_->options().depth;
  DUNLIN_ASSIGN(const transport::LocalSlice place,
                staging_->slice(slot * slot_bytes(), copied.size));
  staged_[slot].reset();
  Status status = sender_->try_send(place, copied.tag, &staged_[slot]);
  if (!status.is_ok()) staged_[slot].fire(Status::ok());
  return status;
}

Status Ring::sent(std::uint64_t count) const {
  if (sender_->sent() >= count) return Status::ok();
  return failure_.is_ok() ? Status::busy() : failure_;
}

std::optional<transport::Message> Ring::poll() {
  auto message = receiver_->poll();
  if (message) held_.push_back(1);
  return message;
}

void Ring::release(std::uint64_t sequence) {
  if (gpu_ != nullptr && !gpu_->is_done(gpu_->started())) {
    released_.push_back({gpu_->started(), sequence});
  } else {
    release_now(sequence);
  }
}

void Ring::release_now(std::uint64_t sequence) {
  --held_[sequence - first_held_];
  for (; !held_.empty() && held_.front() == 0; ++first_held_) {
    held_.pop_front();
    owes_ack_ = receiver_->release().is_busy();
  }
}

void Ring::progress() {
  if (owes_ack_) owes_ack_ = receiver_->progress().is_busy();
  if (gpu_ == nullptr) return;
  while (!released_.empty() && gpu_->is_done(released_.front().ticket)) {
    release_now(released_.front().sequence);
    released_.pop_front();
  }
  if (failure_.is_ok()) failure_ = gpu_->failure();
  while (failure_.is_ok() && !copies_.empty() && gpu_->is_done(copies_.front().ticket)) {
    Status status = announce(copies_.front());
    if (status.is_busy()) return;
    failure_ = std::move(status);
    if (failure_.is_ok()) copies_.pop_front();
  }
}

void Ring::abandon() {
  copies_.clear();
  released_.clear();
}

Status Pair::connect() {
  DUNLIN_TRY(messages->connect());
  return chunks->connect();
}

bool Ring::is_done() const {
  const std::size_t staged = staged_ == nullptr ? 0 : exchange_->options().depth;
  return std::all_of(staged_.get(), staged_.get() + staged,
                     [](const transport::Completion& sent) { return sent.is_done(); });
}

}  // namespace dunlin::collective::neighbor
