// The part of UcxLane that calls UCX and handles its callbacks.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "transports/ucx/engine.h"
#include "transports/ucx/lane.h"

namespace dunlin::transport::ucx {
namespace {

const char* name_of(const Operation& operation) {
  if (operation.is_remote_flush) return "remote flush";
  if (!operation.has_message) return "put";
  if (operation.header.kind == MessageKind::kPut) return "put";
  if (operation.header.kind == MessageKind::kRead) return "get";
  return operation.header.size == 0 ? "notification" : "put with notification";
}

Status refusal(Code code, std::uint64_t region, Rank peer) {
  const char* reason = code == Code::kNotFound     ? "is not registered"
                       : code == Code::kOutOfRange ? "or its board is too small for it"
                                                   : "could not be written";
  return Status(code,
                fmt::format("the peer refused the operation: its region {} {}", region, reason))
      .with_peer(peer);
}

}  // namespace

void UcxLane::start_rma(Operation& operation, const LocalSlice& from, const RemoteSlice& to) {
  const auto& region = static_cast<const UcxRemoteRegion&>(*to.region());
  has_unflushed_rma_ = true;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH;
  params.cb.send = on_request;
  params.user_data = &operation;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  params.memh = operation.source->mapped().handle->handle();
  track(operation,
        ucp_put_nbx(path_.endpoint->handle(), from.data(), from.size(),
                    region.address() + to.offset(), region.key(kind_)->handle(), &params));
}

void UcxLane::start_flush(Operation& operation) {
  has_unflushed_rma_ = false;
  if (path_.endpoint == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_flushed;
  params.user_data = &operation;
  const ucs_status_ptr_t request = ucp_ep_flush_nbx(path_.endpoint->handle(), &params);
  operation.is_flushing = UCS_PTR_IS_PTR(request);
  if (operation.is_flushing) ++path_.flushes;
  track(operation, request);
}

// A send that completes at once calls this again from its callback; the outer call continues.
void UcxLane::send_in_turn() {
  if (is_sending_) return;
  is_sending_ = true;
  while (unsent_ != tail_ && !at(unsent_).is_flushing) {
    Operation& operation = at(unsent_++);
    // Puts before it did not land, so they must not be announced.
    const bool can_send = operation.outcome.is_ok() && path_.endpoint != nullptr;
    if (operation.has_message && can_send) send(operation);
    operation.is_sent = true;
    finish_if_done(operation);
  }
  is_sending_ = false;
}

void UcxLane::send(Operation& operation) {
  if (operation.unread != 0) {
    read_on(operation);
    return;
  }
  if (operation.is_remote_flush) {
    // No message was sent since the last answer, and RMA puts have been flushed by now.
    if (last_put_ <= visible_up_to_) return;
    operation.awaits_answer = true;
  }
  transmit(operation);
  if (!operation.is_remote_flush) last_put_ = operation.header.order;
}

// Asks for the next piece of a get.
void UcxLane::read_on(Operation& operation) {
  operation.header.size = std::min(operation.unread, kReadLimit);
  operation.awaits_answer = true;
  transmit(operation);
}

void UcxLane::transmit(Operation& operation) {
  MessageHeader& header = operation.header;
  header.order = ++path_.sent;
  const bool is_fetched = operation.may_be_fetched && operation.payload_size > kEagerLimit;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.flags = is_fetched ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = on_request;
  params.user_data = &operation;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  if (is_fetched) {
    // Without this handle, UCX registers the bytes by itself. In 1.16, such an operation to a peer
    // that dies then completes only when the registration has no other users, which may be never.
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = operation.source->mapped().handle->handle();
  }
  track(operation,
        ucp_am_send_nbx(path_.endpoint->handle(), kLaneMessage, &header, header.wire_size(),
                        operation.payload, operation.payload_size, &params));
}

void UcxLane::track(Operation& operation, ucs_status_ptr_t request) {
  if (UCS_PTR_IS_PTR(request)) {
    ++operation.requests;
  } else if (UCS_PTR_IS_ERR(request)) {
    // UCX refuses a message only if the path cannot send any more. The path is ended outside of
    // UCX's callbacks.
    connection_.note_error(path_, UCS_PTR_STATUS(request));
    operation.outcome = failure_of(operation, UCS_PTR_STATUS(request));
  }
}

void UcxLane::on_request(void* request, ucs_status_t status, void* user_data) {
  on_finished(request, status, *static_cast<Operation*>(user_data));
}

void UcxLane::on_flushed(void* request, ucs_status_t status, void* user_data) {
  auto& operation = *static_cast<Operation*>(user_data);
  operation.is_flushing = false;
  UcxLane* const lane = operation.lane;
  Path& path = *operation.path;
  --path.flushes;
  on_finished(request, status, operation);
  if (lane != nullptr) lane->send_in_turn();
  path.connection.settle_soon(path);
}

void UcxLane::on_finished(void* request, ucs_status_t status, Operation& operation) {
  ucp_request_free(request);
  --operation.requests;
  UcxLane* const lane = operation.lane;
  if (lane == nullptr) return;
  if (status != UCS_OK && operation.outcome.is_ok())
    operation.outcome = lane->failure_of(operation, status);
  lane->finish_if_done(operation);
}

Status UcxLane::failure_of(const Operation& operation, ucs_status_t status) const {
  if (!path_.failure.is_ok()) return path_.failure;
  // The status that the receiver returns for bytes that it does not fetch.
  if (status == UCS_ERR_NO_ELEM || status == UCS_ERR_OUT_OF_RANGE ||
      status == UCS_ERR_INVALID_ADDR) {
    return refusal(to_code(status), operation.header.region, link_.peer());
  }
  Status failure = to_status(name_of(operation), status);
  // Some of UCX's codes for a broken endpoint look like a failure of this process.
  const bool is_broken =
      path_.error || status == UCS_ERR_SHMEM_SEGMENT || status == UCS_ERR_IO_ERROR;
  if (is_broken) failure = Status(Code::kPeerDead, std::string(failure.message()));
  return std::move(failure).with_peer(link_.peer());
}

void UcxLane::finish_if_done(Operation& operation) {
  if (operation.is_done || operation.requests != 0) return;
  const bool is_over = !path_.failure.is_ok();
  const bool is_pending = !operation.is_sent || operation.awaits_answer;
  if (!is_over && is_pending) return;
  if (operation.is_local_flush && !is_over && &operation != &at(head_)) return;
  if (operation.outcome.is_ok() && operation.unread != 0 && !is_over) {
    read_on(operation);
    return;
  }
  const bool is_whole = !is_pending && operation.unread == 0;
  if (is_over && operation.outcome.is_ok() && !is_whole) operation.outcome = path_.failure;
  complete(operation);
}

void UcxLane::complete(Operation& operation) {
  if (operation.is_remote_flush && operation.outcome.is_ok()) {
    operation.outcome = std::exchange(rejection_, Status::ok());
  }
  operation.is_done = true;
  ++completed_;
  fire(std::exchange(operation.completion, nullptr), std::move(operation.outcome));
  pop_done();
}

void UcxLane::pop_done() {
  while (head_ != tail_ && at(head_).is_done) ++head_;
  if (head_ != tail_ && at(head_).is_local_flush) finish_if_done(at(head_));
}

void UcxLane::on_flush_answered(std::uint64_t order) {
  visible_up_to_ = std::max(visible_up_to_, order);
  for (std::uint64_t position = head_; position != unsent_; ++position) {
    Operation& operation = at(position);
    if (!operation.awaits_answer || operation.header.order != order) continue;
    operation.awaits_answer = false;
    finish_if_done(operation);
    return;
  }
}

void UcxLane::on_read(std::uint64_t order, std::span<const std::byte> bytes) {
  for (std::uint64_t position = head_; position != unsent_; ++position) {
    Operation& operation = at(position);
    const bool is_it = !operation.is_done && operation.awaits_answer && operation.unread != 0;
    if (!is_it || operation.header.order != order) continue;
    operation.awaits_answer = false;
    if (bytes.size() == operation.header.size) {
      std::memcpy(operation.into, bytes.data(), bytes.size());
      operation.into += bytes.size();
      operation.unread -= bytes.size();
      operation.header.offset += bytes.size();
    } else {
      operation.outcome = Status(Code::kCorrupted, fmt::format("{} bytes arrived for a get of {}",
                                                               bytes.size(), operation.header.size))
                              .with_peer(link_.peer());
    }
    finish_if_done(operation);
    return;
  }
}

void UcxLane::on_rejected(std::uint64_t order, Code code, std::uint64_t region) {
  const Status status = refusal(code, region, link_.peer());
  for (std::uint64_t position = head_; position != unsent_; ++position) {
    Operation& operation = at(position);
    if (operation.is_done || operation.is_remote_flush || operation.header.order != order) continue;
    operation.outcome = status;
    if (operation.unread != 0) {
      operation.awaits_answer = false;
      finish_if_done(operation);
    }
    return;
  }
  if (!is_closed_ && rejection_.is_ok()) rejection_ = status;
}

}  // namespace dunlin::transport::ucx
