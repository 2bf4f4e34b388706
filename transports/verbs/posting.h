// How operations become work requests: what each one passes through on its way to the NIC, inline,
// so that a put compiles to one function: what a short one has to do costs little more than the
// calls would. For those who launch; outbound.h declares it.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "transports/verbs/constants.h"
#include "transports/verbs/outbound.h"
#include "transports/verbs/port.h"

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

// Work requests that are posted by one call. The last one's end marks all of them.
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

inline void Operation::rewind() {
  has_bytes_left = moves_bytes && !is_short && !is_done;
  has_record_left = notifies && !is_done;
  posted = 0;
  record = 0;
  last_request = 0;
}

inline void Outbound::announce(Operation& operation, const Notification& notification) {
  operation.notifies = true;
  operation.cell = static_cast<std::uint32_t>(notification.id);
  record_at(tail_).set(notification);
  if (operation.cell >= sequences_.size()) sequences_.resize(operation.cell + 1);
  std::uint64_t& last = sequences_[operation.cell];
  const auto short_form = ShortForm::of(notification, last, operation.size);
  operation.is_short = short_form && operation.size <= port_.longest_message();
  if (operation.is_short) operation.immediate = short_form->encode();
  last = notification.sequence;
}

inline void Outbound::append() {
  at(tail_).rewind();
  ++tail_;
}

inline void Outbound::launch() {
  append();
  pump();
}

inline bool Outbound::has_landed(const Operation& operation) const {
  if (operation.action != Action::kFlush || operation.awaited == 0) return true;
  return std::atomic_ref(*landed()).load(std::memory_order_acquire) >= operation.awaited;
}

inline void Outbound::note_landings() {
  const bool awaits = state_ == State::kConnected && head_ != unposted_ && !has_landed(at(head_));
  if (awaits != awaits_landings_) await_landings(awaits);
}

// Flat, that is, with everything inlined that can be.
[[gnu::hot, gnu::flatten]] inline void Outbound::pump() {
  note_landings();
  while (state_ == State::kConnected && unposted_ != tail_) {
    Chain chain;
    while (unposted_ != tail_ && chain.size < kBatch &&
           add_request(chain, at(unposted_), unposted_)) {
      if (at(unposted_).last_request != 0) ++unposted_;
    }
    if (chain.size == 0) return;
    if (Status status = post(chain); !status.is_ok()) lose(std::move(status).with_peer(peer_));
  }
}

inline bool Outbound::add_request(Chain& chain, Operation& operation, std::uint64_t position) {
  if (requested_ - returned_ == depth_) return false;
  if (operation.has_bytes_left) {
    add_bytes(chain, operation);
  } else if (operation.has_record_left) {
    if (notified_ - taken_ == answer_.slots) return false;
    add_notification(chain, operation, position);
  } else if (operation.awaits_stripes) {
    return false;
  } else {
    // A put whose stripes have landed, with nothing to announce. Or one that was refused by the
    // peer, over a connection that is no more: a request that does nothing keeps its place in the
    // order.
    chain.add(++requested_, IBV_WR_RDMA_WRITE, 0, 0, 0);
  }
  const bool is_last = !operation.has_bytes_left && !operation.has_record_left;
  if (is_last) operation.last_request = requested_;
  const bool is_full = requested_ - returned_ == depth_;
  if ((is_last && operation.is_signaled) || is_full ||
      requested_ - last_signaled_ >= signal_every_) {
    chain.requests[chain.size - 1].send_flags |= IBV_SEND_SIGNALED;
    last_signaled_ = requested_;
  }
  return true;
}

inline void Outbound::add_bytes(Chain& chain, Operation& operation) {
  const auto length = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(operation.size - operation.posted, port_.longest_message()));
  ibv_send_wr& request = chain.add(++requested_, opcode_of(operation.action),
                                   operation.local + operation.posted, length, operation.local_key);
  if (operation.action == Action::kFlush) operation.awaited = landing_;
  aim(request, operation);
  const bool can_be_inline =
      operation.action == Action::kWrite && length != 0 && !operation.is_on_gpu;
  if (can_be_inline && length <= inline_limit_) request.send_flags |= IBV_SEND_INLINE;
  operation.posted += length;
  operation.has_bytes_left = operation.posted != operation.size;
}

inline void Outbound::aim(ibv_send_wr& request, const Operation& operation) const {
  if (operation.is_atomic()) {
    request.wr.atomic = {operation.remote, operation.operand, operation.desired,
                         operation.remote_key};
  } else if (operation.action == Action::kFlush) {
    // The answer comes after everything before it is in memory.
    *request.sg_list = {reinterpret_cast<std::uint64_t>(landed()),
                        static_cast<std::uint32_t>(operation.size), key_->local()};
    request.wr.rdma = {answer_.mailbox_address + answer_.slots * sizeof(Record),
                       answer_.mailbox_key};
  } else {
    request.wr.rdma = {operation.remote + operation.posted, operation.remote_key};
  }
}

inline void Outbound::add_notification(Chain& chain, Operation& operation, std::uint64_t position) {
  std::uint64_t local = operation.local;
  std::uint64_t length = operation.size;
  std::uint32_t key = operation.local_key;
  std::uint32_t immediate = operation.immediate;
  decltype(ibv_send_wr::wr.rdma) target{operation.remote, operation.remote_key};
  if (!operation.is_short) {
    const Record& record = record_at(position);
    const std::uint64_t slot = notified_ % answer_.slots;
    local = reinterpret_cast<std::uint64_t>(&record);
    length = record.wire_size();
    key = key_->local();
    immediate = operation.cell;
    target = {answer_.mailbox_address + slot * sizeof(Record), answer_.mailbox_key};
  }
  ibv_send_wr& request = chain.add(++requested_, IBV_WR_RDMA_WRITE_WITH_IMM, local,
                                   static_cast<std::uint32_t>(length), key);
  request.wr.rdma = target;
  request.imm_data = htonl(immediate);
  const bool is_here = !operation.is_short || !operation.is_on_gpu;
  if (is_here && length != 0 && length <= inline_limit_) request.send_flags |= IBV_SEND_INLINE;
  operation.record = ++notified_;
  if (operation.cell == kLanded) landing_ = notified_;
  operation.has_record_left = false;
}

inline Status Outbound::post(Chain& chain) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(session_->queue_pair(), chain.requests, &bad);
  return error == 0 ? Status::ok() : Status::from_errno("ibv_post_send", error);
}

}  // namespace dunlin::transport::verbs
