// Outbound's dealings with its queue pair: what is posted when, and what comes of it.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "transports/verbs/constants.h"
#include "transports/verbs/engine.h"
#include "transports/verbs/gpu_memory.h"
#include "transports/verbs/outbound.h"

namespace dunlin::transport::verbs {
namespace {

// What a flush reads back: the number of the last landing note that was carried out.
constexpr std::uint64_t kFlushBytes = sizeof(std::uint64_t);

ibv_wr_opcode opcode_of(Action action) {
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

}  // namespace

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

void Operation::attach_flush() {
  action = Action::kFlush;
  moves_bytes = true;
  size = kFlushBytes;
}

void Operation::rewind() {
  has_bytes_left = moves_bytes && !is_short && !is_done;
  has_record_left = notifies && !is_done;
  posted = 0;
  record = 0;
  last_request = 0;
}

std::optional<AtomicScope> Outbound::atomics() const {
  return engine_.address().atomics ? address_.atomics : std::nullopt;
}

void Outbound::announce(Operation& operation, const Notification& notification) {
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

void Outbound::announce(Operation& operation, const Landing& landing) {
  operation.notifies = true;
  operation.cell = kLanded;
  record_at(tail_).set(landing);
}

void Outbound::receive_former(Operation& operation) {
  operation.local = reinterpret_cast<std::uint64_t>(&record_at(tail_));
  operation.local_key = key_->local();
  operation.size = sizeof(std::uint64_t);
  operation.moves_bytes = true;
}

void Outbound::spell_out() {
  std::fill(sequences_.begin(), sequences_.end(), UINT64_MAX);
  for (std::uint64_t position = head_; position != tail_; ++position) {
    Operation& one = at(position);
    // The bytes of a short form would have gone with it.
    if (one.is_short && one.has_record_left) one.has_bytes_left = one.moves_bytes;
    one.is_short = false;
  }
}

void Outbound::append() {
  at(tail_).rewind();
  ++tail_;
}

// Flat, that is, with everything inlined that can be: a short operation costs little more than its
// calls would.
[[gnu::flatten]] void Outbound::launch() {
  append();
  pump();
}

void Outbound::send_service(std::uint32_t immediate, std::uint64_t number) {
  if (state_ == State::kOver) return;
  services_.emplace_back(immediate, number);
  send_waiting_services();
}

void Outbound::send_waiting_services() {
  std::size_t sent = 0;
  for (; sent < services_.size(); ++sent) {
    Operation* const operation = claim();
    if (operation == nullptr) break;
    operation->name = "message";
    operation->notifies = true;
    operation->cell = services_[sent].first;
    record_at(tail_).set({NotifyId{}, services_[sent].second, 0, 0, {}});
    append();
  }
  services_.erase(services_.begin(), services_.begin() + static_cast<std::ptrdiff_t>(sent));
  if (sent != 0) pump();
}

void Outbound::post_fence() {
  if (is_empty() || at(tail_ - 1).is_signaled) return;
  Operation* const operation = claim();
  if (operation == nullptr) return;
  operation->name = "fence";
  operation->moves_bytes = true;
  operation->is_signaled = true;
  launch();
}

bool Outbound::has_landed(const Operation& operation) const {
  if (operation.action != Action::kFlush || operation.awaited == 0) return true;
  return std::atomic_ref(*landed()).load(std::memory_order_acquire) >= operation.awaited;
}

void Outbound::note_landings() {
  const bool awaits = state_ == State::kConnected && head_ != unposted_ && !has_landed(at(head_));
  if (awaits == awaits_landings_) return;
  awaits_landings_ = awaits;
  engine_.count_landing_waits(awaits ? 1 : -1);
}

void Outbound::look_for_landings(TimePoint now) {
  if (!awaits_landings_ || now < next_look_) return;
  next_look_ = now + kLandingInterval;
  const Operation& flush = at(head_);
  const bool has_looked =
      flush.last_request != 0 && std::max(flush.last_request, look_) <= returned_;
  if (!has_looked || requested_ - returned_ == depth_) return;
  Chain chain;
  ibv_send_wr& request = chain.add(++requested_, IBV_WR_RDMA_READ, 0, 1, 0);
  aim(request, flush);
  request.send_flags = IBV_SEND_SIGNALED;
  look_ = last_signaled_ = requested_;
  if (Status status = post(chain); !status.is_ok()) lose(std::move(status).with_peer(peer_));
}

void Outbound::pump() {
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

bool Outbound::add_request(Chain& chain, Operation& operation, std::uint64_t position) {
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

void Outbound::add_bytes(Chain& chain, Operation& operation) {
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

void Outbound::aim(ibv_send_wr& request, const Operation& operation) const {
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

void Outbound::add_notification(Chain& chain, Operation& operation, std::uint64_t position) {
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

Status Outbound::post(Chain& chain) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(session_->queue_pair(), chain.requests, &bad);
  return error == 0 ? Status::ok() : Status::from_errno("ibv_post_send", error);
}

void Outbound::on_completion(const ibv_wc& completion) {
  const bool is_receive = completion.wr_id == 0;
  if (completion.status != IBV_WC_SUCCESS) {
    if (!is_receive) on_failed_request(completion);
    return;  // receives come back with the requests, of a queue pair that is broken
  }
  if (is_receive) {
    const std::uint32_t told = ntohl(completion.imm_data);
    taken_ += told - static_cast<std::uint32_t>(taken_);
    if (Status status = session_->post_receive(); !status.is_ok())
      return lose(std::move(status).with_peer(peer_));
  } else {
    retire(completion.wr_id);
  }
  pump();
}

// Those before it have been carried out; it and all behind it haven't, or not for sure.
void Outbound::on_failed_request(const ibv_wc& completion) {
  retire(completion.wr_id - 1);
  // A flush at the head may have been carried out and still wait.
  std::uint64_t failed = head_;
  while (failed != unposted_ && at(failed).last_request != 0 &&
         at(failed).last_request < completion.wr_id) {
    ++failed;
  }
  Status status =
      to_status(failed == tail_ ? "probe" : at(failed).name, completion).with_peer(peer_);
  if (is_refusal(completion) && failed != tail_) {
    finish(at(failed), status);
    if (at(failed).is_tied) finish(at(failed + 1), status);
    spell_out();
  }
  lose(std::move(status));
}

void Outbound::retire(std::uint64_t request) {
  returned_ = std::max(returned_, request);
  while (head_ != unposted_ && at(head_).last_request != 0 && at(head_).last_request <= returned_ &&
         has_landed(at(head_))) {
    arrived_ = std::max(arrived_, at(head_).record);
    finish(at(head_++), Status::ok());
  }
  if (!services_.empty()) send_waiting_services();
}

void Outbound::finish(Operation& operation, const Status& carried_out) {
  if (std::exchange(operation.is_done, true)) return;
  ++completed_;
  Status status = carried_out;
  if (status.is_ok() && operation.sink != nullptr)
    status = operation.sink->deliver(operation.sink_offset, operation.size).with_peer(peer_);
  Completion* const completion = std::exchange(operation.completion, nullptr);
  const bool is_remote_flush = operation.action == Action::kFlush;
  if (operation.is_atomic() && operation.before != nullptr && status.is_ok())
    std::memcpy(operation.before, reinterpret_cast<const void*>(operation.local),
                sizeof(std::uint64_t));
  // What is tied to another tells by that one.
  if (!status.is_ok() && completion == nullptr && !operation.is_tied && refusal_.is_ok())
    refusal_ = status;
  if (completion == nullptr) return;
  completion->fire(status.is_ok() && is_remote_flush ? std::move(refusal_) : status);
}

void Outbound::probe() {
  if (state_ != State::kConnected || is_empty() || last_signaled_ > returned_) return;
  Chain chain;
  chain.add(++requested_, IBV_WR_RDMA_WRITE, 0, 0, 0).send_flags = IBV_SEND_SIGNALED;
  last_signaled_ = requested_;
  if (Status status = post(chain); !status.is_ok()) lose(std::move(status).with_peer(peer_));
}

}  // namespace dunlin::transport::verbs
