// How operations become work requests: the inline functions of Outbound (outbound.h).
//
// Every operation passes through them on its way to the device. They are inline, so that a put
// compiles to one function: for a short put, the calls would cost nearly as much as the work. Only
// files that post operations include this header.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "transports/verbs/constants.h"
#include "transports/verbs/path/outbound.h"
#include "transports/verbs/rails/port.h"

namespace dunlin::transport::verbs {

inline ibv_wr_opcode opcode_of(Action action) {
  switch (action) {
    case Action::kWrite:
      return IBV_WR_RDMA_WRITE;
    case Action::kFlush:
    case Action::kRead:
      return IBV_WR_RDMA_READ;
    case Action::kFetchAdd:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case Action::kCompareSwap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
  }
  return IBV_WR_RDMA_WRITE;
}

// Work requests that are posted by one call.
struct Outbound::Chain {
  ibv_send_wr requests[kBatch];
  ibv_sge pieces[kBatch];
  std::uint32_t size = 0;

  ibv_send_wr& add(std::uint64_t number, ibv_wr_opcode opcode, std::uint64_t local,
                   std::uint32_t length, std::uint32_t key) {
    ibv_send_wr& request = requests[size];
    request = {};
    pieces[size] = {local, length, key};
    request.wr_id = number;
    request.sg_list = &pieces[size];
    request.num_sge = length == 0 ? 0 : 1;
    request.opcode = opcode;
    if (size > 0) requests[size - 1].next = &request;
    ++size;
    return request;
  }
};

inline void Outbound::put(const Transfer& transfer, Completion* completion) {
  ring_.append_put("put", transfer, completion);
  pump();
}

inline void Outbound::put_notify(const Transfer& transfer, const Notification& notification,
                                 Completion* completion) {
  ring_.append_put_notify("put with notification", transfer, notification, completion);
  pump();
}

inline void Outbound::notify(const Notification& notification, Completion* completion) {
  ring_.append_notify("notification", notification, completion);
  pump();
}

inline bool Outbound::has_landed(const Operation& operation) const {
  return operation.action != Action::kFlush || landings_.has_landed(operation.progress.awaited);
}

inline void Outbound::update_landing_wait() {
  landings_.set_waiting(connection_.is_connected() && ring_.is_head_on_wire() &&
                        !has_landed(ring_.head()));
}

// Flat: everything is inlined that can be.
[[gnu::hot, gnu::flatten]] inline void Outbound::pump() {
  update_landing_wait();
  while (connection_.is_connected() && ring_.has_unposted()) {
    Chain chain;
    while (ring_.has_unposted() && chain.size < kBatch) {
      Operation& operation = ring_.at(ring_.unposted());
      if (!add_request(chain, operation, ring_.unposted())) break;
      if (operation.is_posted()) ring_.mark_posted();
    }
    if (chain.size == 0) return;
    if (Status status = post(chain); !status.is_ok()) lose(std::move(status));
  }
}

inline bool Outbound::add_request(Chain& chain, Operation& operation, std::uint64_t position) {
  Operation::Progress& progress = operation.progress;
  if (!window_.has_request_room()) return false;
  if (progress.has_bytes_left) {
    add_bytes(chain, operation);
  } else if (progress.has_record_left) {
    if (!window_.has_mailbox_room()) return false;
    add_notification(chain, operation, position);
  } else if (operation.awaits_stripes) {
    return false;
  } else {
    // The stripes of a put without a notification have landed, or the peer refused the operation
    // over a connection that was lost since. A request that does nothing keeps its place in the
    // order.
    chain.add(window_.next_request(), IBV_WR_RDMA_WRITE, 0, 0, 0);
  }
  const bool is_last = !progress.has_bytes_left && !progress.has_record_left;
  if (is_last) progress.last_request = window_.last_request();
  if (window_.must_signal(is_last && operation.is_signaled))
    chain.requests[chain.size - 1].send_flags |= IBV_SEND_SIGNALED;
  return true;
}

inline void Outbound::add_bytes(Chain& chain, Operation& operation) {
  const Transfer& transfer = operation.transfer;
  Operation::Progress& progress = operation.progress;
  const auto length = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(transfer.size - progress.posted, port_.longest_message()));
  ibv_send_wr& request = chain.add(window_.next_request(), opcode_of(operation.action),
                                   transfer.local + progress.posted, length, transfer.local_key);
  if (operation.action == Action::kFlush) progress.awaited = landings_.last_note();
  aim(request, operation);
  const bool can_be_inline =
      operation.action == Action::kWrite && length != 0 && !transfer.is_on_gpu;
  if (can_be_inline && length <= connection_.inline_limit()) request.send_flags |= IBV_SEND_INLINE;
  progress.posted += length;
  progress.has_bytes_left = progress.posted != transfer.size;
}

inline void Outbound::aim(ibv_send_wr& request, const Operation& operation) const {
  const Transfer& transfer = operation.transfer;
  if (operation.is_atomic()) {
    request.wr.atomic = {transfer.remote, operation.atomic.operand, operation.atomic.desired,
                         transfer.remote_key};
  } else if (operation.action == Action::kFlush) {
    // The peer's device answers once everything before the request is in memory.
    *request.sg_list = {reinterpret_cast<std::uint64_t>(ring_.landed()),
                        static_cast<std::uint32_t>(transfer.size), ring_.key()};
    request.wr.rdma = {window_.landed_address(), window_.mailbox_key()};
  } else {
    request.wr.rdma = {transfer.remote + operation.progress.posted, transfer.remote_key};
  }
}

inline void Outbound::add_notification(Chain& chain, Operation& operation, std::uint64_t position) {
  const Transfer& transfer = operation.transfer;
  const Operation::Announcement& announcement = operation.announcement;
  std::uint64_t local = transfer.local;
  std::uint64_t length = transfer.size;
  std::uint32_t key = transfer.local_key;
  std::uint32_t immediate = announcement.immediate;
  decltype(ibv_send_wr::wr.rdma) target{transfer.remote, transfer.remote_key};
  if (!announcement.is_short) {
    const Record& record = ring_.record_at(position);
    local = reinterpret_cast<std::uint64_t>(&record);
    length = record.wire_size();
    key = ring_.key();
    immediate = announcement.cell;
    target = {window_.next_slot(), window_.mailbox_key()};
  }
  ibv_send_wr& request = chain.add(window_.next_request(), IBV_WR_RDMA_WRITE_WITH_IMM, local,
                                   static_cast<std::uint32_t>(length), key);
  request.wr.rdma = target;
  request.imm_data = htonl(immediate);
  const bool is_readable = !announcement.is_short || !transfer.is_on_gpu;
  if (is_readable && length != 0 && length <= connection_.inline_limit())
    request.send_flags |= IBV_SEND_INLINE;
  operation.progress.record = window_.next_notification();
  if (announcement.cell == kLanded) landings_.note_sent(operation.progress.record);
  operation.progress.has_record_left = false;
}

inline Status Outbound::post(Chain& chain) {
  last_use_ = share_.next_use();
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(connection_.queue_pair(), chain.requests, &bad);
  return error == 0 ? Status::ok() : Status::from_errno("ibv_post_send", error);
}

}  // namespace dunlin::transport::verbs
