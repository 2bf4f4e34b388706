#include "transports/endpoint/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/endpoint/constants.h"

namespace dunlin::transport::endpoint {

Result<std::unique_ptr<MessageStream>> MessageStream::create(SlotExchange& slots,
                                                             std::size_t largest_message,
                                                             Take take) {
  const SlotOptions& options = slots.options();
  std::unique_ptr<LocalRegion> staging;
  const RemoteRegion* const region = slots.out().front().region.get();
  if (region == nullptr || region->mapped() == nullptr) {
    DUNLIN_ASSIGN(staging, slots.fabric().allocate(options.slot_bytes * options.depth));
  }
  return std::unique_ptr<MessageStream>(
      new MessageStream(slots, largest_message, std::move(take), std::move(staging)));
}

MessageStream::MessageStream(SlotExchange& slots, std::size_t largest_message, Take take,
                             std::unique_ptr<LocalRegion> staging)
    : slot_bytes_(slots.options().slot_bytes),
      depth_(slots.options().depth),
      largest_message_(largest_message),
      take_(std::move(take)),
      staging_(std::move(staging)),
      out_(slots, slots.out().front()),
      in_(slots, slots.in().front()),
      arriving_(slot_bytes_, largest_message) {}

Status MessageStream::send(MessageKind kind, std::span<const std::byte> message) {
  if (message.size() > largest_message_) {
    return {Code::kOutOfRange, fmt::format("a message of {} bytes; the largest has {}",
                                           message.size(), largest_message_)};
  }
  const bool is_programs = kind == MessageKind::kProgram;
  if (is_programs && !pending_.empty() && pending_bytes_ + message.size() > kMaxUnsent)
    return Status::busy();
  DUNLIN_TRY(pump());
  if (pending_.empty() && message.size() <= slot_bytes_) {
    Status status = send_part(message, PartTag{kind}.encode());
    if (!status.is_busy()) return status;
  }
  pending_bytes_ += message.size();
  pending_.push_back({kind, Bytes(message.begin(), message.end())});
  return pump();
}

Status MessageStream::pump() {
  while (!pending_.empty()) {
    Pending& next = pending_.front();
    const std::span<const std::byte> rest = std::span(next.bytes).subspan(next.sent);
    const std::span<const std::byte> part = rest.first(std::min(rest.size(), slot_bytes_));
    const bool is_last = part.size() == rest.size();
    Status status = send_part(part, PartTag{next.kind, !is_last}.encode());
    if (status.is_busy()) return Status::ok();
    DUNLIN_TRY(std::move(status));
    next.sent += part.size();
    if (!is_last) continue;
    pending_bytes_ -= next.bytes.size();
    pending_.pop_front();
  }
  return Status::ok();
}

Status MessageStream::send_part(std::span<const std::byte> part, std::uint64_t tag) {
  if (part.size() <= kInlineBytes) return out_.try_send_inline(part, tag);
  if (!out_.has_credit()) return Status::busy();
  if (std::byte* const slot = out_.mapped_slot(); slot != nullptr) {
    std::memcpy(slot, part.data(), part.size());
    return out_.announce(part.size(), tag);
  }
  // The message that used this part of the staging memory has been acknowledged: there is a credit.
  const std::size_t offset = out_.sent() % depth_ * slot_bytes_;
  DUNLIN_ASSIGN(const LocalSlice staged, staging_->slice(offset, part.size()));
  std::memcpy(staged.data(), part.data(), part.size());
  return out_.try_send(staged, tag, nullptr);
}

Status MessageStream::take_one() {
  const auto part = in_.poll();
  DUNLIN_ASSIGN(auto message, arriving_.add(part->tag, part->data));
  if (Status status = in_.release(); !status.is_ok() && !status.is_busy()) return status;
  if (message) take_(message->kind, std::move(message->bytes));
  return Status::ok();
}

}  // namespace dunlin::transport::endpoint
