#include "collectives/rma/deposit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "collectives/kernels/average.h"

namespace dunlin::collective {

static_assert(std::endian::native == std::endian::little, "DepositHeader is little-endian");

namespace {

// Tensors are copied and scaled in pieces of this size, so that the second pass finds the piece in
// the first-level cache.
constexpr std::size_t kPieceBytes = 16 * 1024;

template <typename T>
void copy_scaled(std::span<T> to, std::span<const T> from, double factor) {
  constexpr std::size_t kPiece = kPieceBytes / sizeof(T);
  for (std::size_t begin = 0; begin < to.size(); begin += kPiece) {
    const std::span<T> piece = to.subspan(begin, std::min(kPiece, to.size() - begin));
    std::memcpy(piece.data(), from.data() + begin, piece.size_bytes());
    scale(piece, factor);
  }
}

template <typename T>
void add_scaled(std::span<T> to, const T* from, double factor) {
  const T weight = static_cast<T>(factor);
  weighted_average(to, T{1}, std::span<const T* const>(&from, 1), std::span<const T>(&weight, 1));
}

}  // namespace

template <typename T>
void scale(std::span<T> tensor, double factor) {
  if (factor == 1) return;
  weighted_average(tensor, static_cast<T>(factor), {}, {});
}

template <typename T>
void DepositSender<T>::deposit(DepositKind kind, std::uint64_t operation, double weight,
                               std::span<const T> self, double p) {
  DepositStaging& staging = pending();
  auto& header = *reinterpret_cast<DepositHeader*>(staging.slice.data());
  const std::span<T> tensor{reinterpret_cast<T*>(staging.slice.data() + sizeof(DepositHeader)),
                            self.size()};
  if (!has_pending_) {
    header = DepositHeader();
    header.kind = kind;
    staging.first_operation = operation;
  }
  if (kind == DepositKind::kAccumulate && has_pending_) {
    // The pending message keeps its kind: a put of the sum, or an accumulate of the sum.
    add_scaled(tensor, self.data(), weight);
    header.p += weight * p;
  } else {
    header.kind = kind;
    copy_scaled(tensor, self, weight);
    header.p = weight * p;
  }
  ++header.deposits;
  staging.last_operation = operation;
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
  const bool is_whole = message.data.size() == deposit_bytes(buffer_.size_bytes());
  DepositHeader header;
  if (is_whole) std::memcpy(&header, message.data.data(), sizeof header);
  if (!is_whole || header.version != DepositHeader::kVersion ||
      (header.kind != DepositKind::kPut && header.kind != DepositKind::kAccumulate)) {
    return Status(Code::kCorrupted,
                  fmt::format("message {} of {} bytes is no deposit of a tensor of {} bytes",
                              message.sequence, message.data.size(), buffer_.size_bytes()))
        .with_peer(peer());
  }
  const T* const tensor = reinterpret_cast<const T*>(message.data.data() + sizeof header);
  if (header.kind == DepositKind::kPut || is_zero_) {
    if (!buffer_.empty()) std::memcpy(buffer_.data(), tensor, buffer_.size_bytes());
    p_ = header.p + (header.kind == DepositKind::kPut ? 0 : p_);
  } else {
    add_scaled(buffer_, tensor, 1);
    p_ += header.p;
  }
  is_zero_ = false;
  version_ += header.deposits;
  return Status::ok();
}

template <typename T>
std::span<const T> DepositReceiver<T>::buffer() {
  // A buffer that counts as zero is cleared when it is read.
  if (is_zero_) std::fill(buffer_.begin(), buffer_.end(), T{0});
  return buffer_;
}

template <typename T>
void DepositReceiver<T>::replace(std::span<const T> tensor, double p, double weight) {
  copy_scaled(buffer_, tensor, weight);
  p_ = weight * p;
  is_zero_ = false;
  ++version_;
}

template void scale(std::span<float> tensor, double factor);
template void scale(std::span<double> tensor, double factor);
template class DepositSender<float>;
template class DepositSender<double>;
template class DepositReceiver<float>;
template class DepositReceiver<double>;

}  // namespace dunlin::collective
