#include "collectives/rma/deposit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "collectives/kernels/scaled.h"

namespace dunlin::collective {

static_assert(std::endian::native == std::endian::little, "DepositHeader is little-endian");

template <typename T>
std::optional<EdgeMemory> DepositSender<T>::map(const transport::OutSlots& edge,
                                                std::size_t tensor_bytes) {
  std::byte* const mapped = edge.region == nullptr ? nullptr : edge.region->mapped();
  if (mapped == nullptr) return std::nullopt;
  std::array<std::byte*, EdgeMemory::kBuffers> slots{};
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = mapped + edge.slots[i].offset();
  return EdgeMemory::of(slots, tensor_bytes);
}

template <typename T>
DepositSender<T>::DepositSender(transport::SlotExchange& exchange, transport::OutSlots& edge,
                                std::span<DepositStaging> ring,
                                const std::optional<EdgeMemory>& mapped, TensorPasses<T>& passes)
    : passes_(&passes),
      doorbell_(edge.link->data()),
      // The queue sends nothing over this edge, so no message is mistaken for the doorbell.
      doorbell_cell_(transport::cell_at(edge.peer_first_cell, 1)),
      counters_(exchange.fabric().counters().peer(edge.to)),
      queue_(exchange, edge),
      ring_(ring) {
  if (mapped) mapped_.emplace(*mapped, passes);
}

template <typename T>
void DepositSender<T>::begin(const Deposit& what, double weight) {
  if (mapped_ && !std::exchange(has_begun_, true))
    mapped_->write(what.kind, weight, what.self, what.p);
}

template <typename T>
Status DepositSender<T>::complete(const Deposit& what, double weight) {
  if (!mapped_) {
    stage(what, weight);
    (void)progress();  // loss() keeps the error
    return Status::ok();
  }
  // A peer may be named twice in an operation.
  bool is_written = std::exchange(has_begun_, false);
  while (!is_written || !mapped_->publish()) {
    mapped_->write(what.kind, weight, what.self, what.p);
    DUNLIN_TRY(passes_->finish());
    is_written = true;
  }
  ++counters_.puts;
  counters_.put_bytes += what.self.size_bytes();
  is_ring_due_ = true;
  if (Status status = ring_doorbell(); status.is_error()) {
    lost_ = {what.operation, what.operation};
    lose(std::move(status));
  }
  return Status::ok();
}

template <typename T>
Status DepositSender<T>::ring_doorbell() {
  transport::Notification ring;
  ring.id = doorbell_cell_;
  ring.sequence = rings_ + 1;
  DUNLIN_TRY(doorbell_.notify(ring));
  ++rings_;
  is_ring_due_ = false;
  return Status::ok();
}

template <typename T>
void DepositSender<T>::stage(const Deposit& what, double weight) {
  const std::span<const T> self = what.host_self;
  DepositStaging& staging = pending();
  auto& header = *reinterpret_cast<DepositHeader*>(staging.slice.data());
  const std::span<T> tensor{reinterpret_cast<T*>(staging.slice.data() + sizeof(DepositHeader)),
                            self.size()};
  if (!has_pending_) {
    header = DepositHeader();
    header.kind = what.kind;
    staging.first_operation = what.operation;
  }
  if (what.kind == DepositKind::kAccumulate && has_pending_) {
    // The pending message keeps its kind: a put of the sum, or an accumulate of the sum.
    add_scaled(tensor, tensor.data(), static_cast<T>(weight), self.data());
    header.p += weight * what.p;
  } else {
    header.kind = what.kind;
    copy_scaled(tensor, static_cast<T>(weight), self.data());
    header.p = weight * what.p;
  }
  ++header.deposits;
  staging.last_operation = what.operation;
  has_pending_ = true;
}

template <typename T>
Status DepositSender<T>::check_completions() const {
  for (const DepositStaging& staging : ring_) {
    if (staging.is_posted && staging.completion.is_done()) DUNLIN_TRY(staging.completion.status());
  }
  return Status::ok();
}

template <typename T>
Status DepositSender<T>::progress() {
  if (loss_.is_error()) return loss_;
  if (mapped_) {
    Status status = is_ring_due_ ? ring_doorbell() : Status::ok();
    if (status.is_error()) lose(status);
    return status;
  }
  if (!is_outstanding()) return Status::ok();
  Status status = check_completions();
  if (status.is_ok() && has_pending_) {
    // The memory of the message before the last `depth` ones is used for the next one.
    DepositStaging& staging = pending();
    if (!queue_.has_credit() || !of(queue_.sent() + 1).is_free()) return Status::busy();
    staging.is_posted = false;
    staging.completion.reset();
    status = queue_.try_send(staging.slice, staging.last_operation, &staging.completion);
    if (status.is_ok()) {
      staging.is_posted = true;
      has_pending_ = false;
    }
  }
  if (status.is_error()) {
    lose(std::move(status));
    return loss_;
  }
  return status;
}

template <typename T>
void DepositSender<T>::lose(Status why) {
  if (loss_.is_error()) return;
  if (const auto operations = outstanding()) lost_ = *operations;
  has_pending_ = false;
  loss_ = std::move(why).with_peer(peer()).with_context("depositing");
}

template <typename T>
std::optional<OperationRange> DepositSender<T>::outstanding() const {
  if (!is_outstanding()) return std::nullopt;
  const std::uint64_t sent = queue_.sent();
  const std::uint64_t done = acknowledged();
  if (done == sent && !has_pending_) return std::nullopt;  // acknowledged since
  return OperationRange{of(done).first_operation,
                        of(has_pending_ ? sent : sent - 1).last_operation};
}

template <typename T>
DepositReceiver<T>::DepositReceiver(transport::SlotExchange& exchange, transport::InSlots& edge,
                                    const EdgeMemory& memory, std::span<T> own, bool is_zero,
                                    TensorPasses<T>& passes)
    : queue_(exchange, edge),
      mapped_(memory),
      passes_(&passes),
      depth_(exchange.options().depth),
      own_(own),
      is_zero_(is_zero) {}

template <typename T>
Status DepositReceiver<T>::progress() {
  if (error_.is_error()) return error_;
  // Take at most as many messages as there are slots, because a fast sender could otherwise keep
  // this loop running.
  for (std::uint32_t i = 0; i < depth_; ++i) {
    const auto message = queue_.poll();
    if (!message) break;
    error_ = take(*message);
    if (error_.is_error()) return error_;
    if (Status status = queue_.release(); status.is_error()) return error_ = std::move(status);
  }
  if (Status status = queue_.progress(); status.is_error()) error_ = std::move(status);
  return error_;
}

template <typename T>
Status DepositReceiver<T>::take(const transport::Message& message) {
  const bool is_whole = message.data.size() == deposit_bytes(own_.size_bytes());
  DepositHeader header;
  if (is_whole) std::memcpy(&header, message.data.data(), sizeof header);
  if (!is_whole || header.version != DepositHeader::kVersion ||
      (header.kind != DepositKind::kPut && header.kind != DepositKind::kAccumulate)) {
    return Status(Code::kCorrupted,
                  fmt::format("message {} of {} bytes is no deposit of a tensor of {} bytes",
                              message.sequence, message.data.size(), own_.size_bytes()))
        .with_peer(peer());
  }
  const std::span<const T> tensor(reinterpret_cast<const T*>(message.data.data() + sizeof header),
                                  own_.size());
  apply(header, passes_->reach(tensor));
  version_ += header.deposits;
  return passes_->finish();  // the slot is released next
}

template <typename T>
void DepositReceiver<T>::apply(const DepositHeader& header, const T* tensor) {
  if (header.kind == DepositKind::kPut || is_zero_) {
    passes_->copy(own_, tensor);
    p_ = header.p + (header.kind == DepositKind::kPut ? 0 : p_);
  } else {
    passes_->add_scaled(own_, own_.data(), T{1}, tensor);
    p_ += header.p;
  }
  is_zero_ = false;
}

template <typename T>
void DepositReceiver<T>::settle(std::uint64_t deposits) {
  version_ += deposits - cleared_;
  held_ = 0;
  cleared_ = 0;
}

template <typename T>
typename DepositReceiver<T>::View DepositReceiver<T>::view(bool takes) {
  const DepositHeader* held = takes ? mapped_.take() : mapped_.hold();
  if (held != nullptr && held->kind == DepositKind::kAccumulate && !is_zero_) {
    // The buffer is the sum of two tensors. Only this end empties the edge, so there is something
    // to take.
    if (!takes) held = mapped_.take();
    apply(*held, mapped_.tensor().data());
    settle(held->deposits);
    held = nullptr;
  }
  View view{is_zero_ ? nullptr : own_.data(), p_, version_};
  if (held != nullptr) {
    if (held->kind == DepositKind::kPut) {
      is_zero_ = true;
      p_ = 0;
    }
    held_ = held->deposits;
    view = {mapped_.tensor().data(), held->p, version_ + held_ - cleared_};
    if (takes) settle(held_);
  }
  if (takes) {
    is_zero_ = true;
    p_ = 0;
  }
  return view;
}

template <typename T>
typename DepositReceiver<T>::View DepositReceiver<T>::read() {
  View view = look();
  if (view.tensor == nullptr) {
    passes_->zero(own_);
    view.tensor = own_.data();
  }
  return view;
}

template <typename T>
void DepositReceiver<T>::replace(std::span<const T> tensor, double p, double weight) {
  if (const DepositHeader* const held = mapped_.take(); held != nullptr) settle(held->deposits);
  passes_->copy_scaled(own_, static_cast<T>(weight), tensor.data());
  p_ = weight * p;
  is_zero_ = false;
  ++version_;
}

template class DepositSender<float>;
template class DepositSender<double>;
template class DepositReceiver<float>;
template class DepositReceiver<double>;

}  // namespace dunlin::collective
