// Outbound's dealings with its queue pair beside posting.h: fences, looks for landings, messages of
// the transport itself, and what comes of what was posted.
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/verbs/constants.h"
#include "transports/verbs/engine.h"
#include "transports/verbs/gpu_memory.h"
#include "transports/verbs/outbound.h"
#include "transports/verbs/posting.h"

namespace dunlin::transport::verbs {
namespace {

// What a flush reads back: the number of the last landing note that was carried out.
constexpr std::uint64_t kFlushBytes = sizeof(std::uint64_t);

}  // namespace

void Operation::attach_flush() {
  action = Action::kFlush;
  moves_bytes = true;
  size = kFlushBytes;
}

std::optional<AtomicScope> Outbound::atomics() const {
  return engine_.address().atomics ? address_.atomics : std::nullopt;
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

void Outbound::await_landings(bool awaits) {
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

[[gnu::hot]] void Outbound::on_completion(const ibv_wc& completion) {
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

[[gnu::hot]] void Outbound::retire(std::uint64_t request) {
  returned_ = std::max(returned_, request);
  while (head_ != unposted_ && at(head_).last_request != 0 && at(head_).last_request <= returned_ &&
         has_landed(at(head_))) {
    arrived_ = std::max(arrived_, at(head_).record);
    finish(at(head_++), Status::ok());
  }
  if (!services_.empty()) send_waiting_services();
}

[[gnu::hot]] void Outbound::finish(Operation& operation, const Status& carried_out) {
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
