// The part of TcpLane that handles the peer's answers and completes operations.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transports/tcp/lane.h"

namespace dunlin::transport::tcp {
namespace {

Status refusal(Code code, std::uint64_t region, Rank peer) {
  const char* const reason =
      code == Code::kNotFound ? "is not registered" : "or its board is too small for it";
  return Status(code,
                fmt::format("the peer refused the operation: its region {} {}", region, reason))
      .with_peer(peer);
}

}  // namespace

Status TcpLane::on_answer(const Answer& answer) {
  const AnswerHeader& header = answer.header;
  if (header.kind == AnswerKind::kBegin) {
    has_begun_ = header.region == origin_.attempt;
    return Status::ok();
  }
  // Answers to a former lane may still come over a connection that this one has joined.
  if (!has_begun_) return Status::ok();
  if (header.kind == AnswerKind::kAcknowledged) return on_acknowledged(header.order);
  if (header.kind == AnswerKind::kRead) return on_read(answer);
  if (header.kind == AnswerKind::kRejected) on_rejected(header);
  return Status::ok();
}

Status TcpLane::on_acknowledged(std::uint64_t order) {
  if (order < acknowledged_ || order > appended_) {
    return {Code::kCorrupted, fmt::format("the peer acknowledged message {} of {} after {}", order,
                                          appended_, acknowledged_)};
  }
  for (std::uint64_t position = std::max(head_, acknowledged_); position < order; ++position) {
    Operation& operation = at(position);
    if (!operation.is_done && !operation.is_local_flush && operation.unread == 0)
      complete(operation);
  }
  has_progressed_ = has_progressed_ || order > acknowledged_;
  acknowledged_ = order;
  if (!is_welcome_) {
    // The first acknowledgment of a connection says where to go on.
    is_welcome_ = was_welcome_ = true;
    carried_before_ = order;
    sent_ = unsent_ = head_;
  }
  settle();
  return Status::ok();
}

// The operation in the ring whose message has this number, or null.
Operation* TcpLane::find(std::uint64_t order) {
  return order > head_ && order <= tail_ ? &at(order - 1) : nullptr;
}

Status TcpLane::on_read(const Answer& answer) {
  Operation* const operation = find(answer.header.order);
  const std::size_t size = answer.bytes.size();
  if (operation == nullptr || size == 0 || size > operation->unread) {
    return {Code::kCorrupted,
            fmt::format("{} bytes arrived for the get {}, which did not ask for them", size,
                        answer.header.order)};
  }
  std::memcpy(operation->into, answer.bytes.data(), size);
  operation->into += size;
  operation->unread -= size;
  operation->header.offset += size;
  has_progressed_ = true;
  if (operation->unread == 0) {
    complete(*operation);
    settle();
  }
  return Status::ok();
}

void TcpLane::on_rejected(const AnswerHeader& header) {
  const Code code{header.code};
  if (code == Code::kNotFound) peer_.imports.revoke(header.region);
  const Status status = refusal(code, header.region, link_.peer());
  Operation* const operation = find(header.order);
  if (operation != nullptr && operation->unread != 0) {
    operation->unread = 0;
    operation->outcome = status;
    complete(*operation);
    settle();
    return;
  }
  if (header.order <= acknowledged_) return;  // told again over a new connection
  if (operation != nullptr && !operation->is_done) {
    operation->outcome = status;
  } else if (!is_closed_ && rejection_.is_ok()) {
    rejection_ = status;
  }
}

void TcpLane::complete(Operation& operation) {
  const bool is_remote_flush =
      operation.header.kind == MessageKind::kFlush && !operation.is_local_flush;
  if (is_remote_flush && operation.completion != nullptr && operation.outcome.is_ok())
    operation.outcome = std::exchange(rejection_, Status::ok());
  operation.is_done = true;
  operation.unread = 0;
  ++completed_;
  fire(std::exchange(operation.completion, nullptr), std::move(operation.outcome));
}

// Completes local flushes behind operations that are done, and frees the places of operations that
// the peer need not be told again.
void TcpLane::settle() {
  undone_ = std::max(undone_, head_);
  for (; undone_ != tail_; ++undone_) {
    Operation& operation = at(undone_);
    if (operation.is_done) continue;
    if (!operation.is_local_flush) break;
    complete(operation);
  }
  while (head_ != tail_ && at(head_).is_done &&
         (head_ < acknowledged_ || at(head_).is_local_flush)) {
    kept_.free_up_to(at(head_).kept_up_to);
    ++head_;
  }
  sent_ = std::max(sent_, head_);
  unsent_ = std::max(unsent_, head_);
}

}  // namespace dunlin::transport::tcp
