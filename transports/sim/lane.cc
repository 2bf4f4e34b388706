#include "transports/sim/lane.h"

#include "transports/sim/endpoint.h"
#include "transports/sim/network.h"
#include "transports/sim/region.h"

namespace dunlin::transport::sim {

SimLane::SimLane(Endpoint& endpoint, const Link& link, LaneKind kind)
    : endpoint_(endpoint),
      link_(link),
      kind_(kind),
      route_(endpoint.network().options().route(endpoint.rank(), link.peer())) {
  endpoint_.enter(*this);
}

SimLane::~SimLane() {
  close();
  endpoint_.leave(*this);
}

Status SimLane::refuse() {
  was_refused_ = true;
  endpoint_.network().count_refusal();
  if (PeerCounters* const counters = endpoint_.counters(peer())) ++counters->busy;
  return Status::busy();
}

Status SimLane::check_post() {
  if (is_closed_) return Status(Code::kClosed, "the lane is closed").with_peer(peer());
  DUNLIN_TRY(endpoint_.peers().check(peer()));
  Network& network = endpoint_.network();
  if (count_ >= network.options().queue_depth) return refuse();
  return network.is_refused(endpoint_.rank()) ? refuse() : Status::ok();
}

Status SimLane::check_cell(const Notification& notification) const {
  const Endpoint* const there = endpoint_.network().endpoint(peer());
  // A rank that has left takes no notifications. That they are lost is not an error.
  return there == nullptr ? Status::ok() : check_notification(notification, there->board().size());
}

OperationId SimLane::add(Completion* completion) {
  OperationPool& operations = endpoint_.network().operations();
  const OperationId id = operations.take();
  Operation& operation = operations[id];
  operation.completion = completion;
  operation.lane = this;
  operation.references = 1;
  operation.previous = last_;
  (last_ == kNoOperation ? first_ : operations[last_].next) = id;
  last_ = id;
  ++count_;
  return id;
}

void SimLane::set_payload(Operation& operation, const LocalSlice& from, const RemoteSlice& to) {
  operation.is_put = true;
  operation.size = from.size();
  operation.wire_bytes += from.size();
  if (from.size() != 0) {
    operation.source = from.data();
    operation.target = static_cast<const SimRemoteRegion*>(to.region())->id();
    operation.offset = to.offset();
  }
  if (PeerCounters* const counters = endpoint_.counters(peer())) {
    ++counters->puts;
    counters->put_bytes += from.size();
  }
}

void SimLane::set_notification(Operation& operation, const Notification& notification) {
  operation.has_notification = true;
  operation.cell = notification.id;
  operation.sequence = notification.sequence;
  operation.tag = notification.tag;
  operation.length = notification.length;
  const auto& data = notification.inline_data;
  operation.inline_size = static_cast<std::uint8_t>(data.size());
  operation.wire_bytes += data.size();
  if (!data.empty()) copy_inline(operation.inline_data, data.data(), data.size());
  if (PeerCounters* const counters = endpoint_.counters(peer())) ++counters->notifies;
}

Status SimLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  DUNLIN_TRY(check_transfer(link_, from, to));
  DUNLIN_TRY(check_post());
  const OperationId id = add(completion);
  set_payload(endpoint_.network().operations()[id], from, to);
  endpoint_.network().launch(id);
  return Status::ok();
}

Status SimLane::put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                           Completion* completion) {
  DUNLIN_TRY(check_transfer(link_, from, to));
  DUNLIN_TRY(check_cell(notification));
  DUNLIN_TRY(check_post());
  const OperationId id = add(completion);
  Operation& operation = endpoint_.network().operations()[id];
  set_payload(operation, from, to);
  set_notification(operation, notification);
  endpoint_.network().launch(id);
  return Status::ok();
}

// The request and the bytes that come back are one operation, which takes a round trip.
Status SimLane::get(RemoteSlice from, LocalSlice to, Completion* completion) {
  DUNLIN_TRY(check_transfer(link_, to, from));
  DUNLIN_TRY(check_post());
  const OperationId id = add(completion);
  Operation& operation = endpoint_.network().operations()[id];
  operation.is_put = true;
  operation.has_answer = true;
  operation.size = to.size();
  operation.wire_bytes += to.size();
  if (to.size() != 0) {
    operation.sink = to.data();
    operation.target = static_cast<const SimRemoteRegion*>(from.region())->id();
    operation.offset = from.offset();
  }
  endpoint_.network().launch(id);
  return Status::ok();
}

Status SimLane::notify(const Notification& notification, Completion* completion) {
  DUNLIN_TRY(check_cell(notification));
  DUNLIN_TRY(check_post());
  const OperationId id = add(completion);
  set_notification(endpoint_.network().operations()[id], notification);
  endpoint_.network().launch(id);
  return Status::ok();
}

Status SimLane::flush(Visibility visibility, Completion* completion) {
  DUNLIN_TRY(check_post());
  const OperationId id = add(completion);
  Operation& operation = endpoint_.network().operations()[id];
  if (visibility == Visibility::kRemote) {
    operation.has_answer = true;
    endpoint_.network().launch(id);
  } else {
    operation.is_local_flush = true;
    ++flushes_;
    finish_flush();
  }
  return Status::ok();
}

void SimLane::finish_flush() {
  Network& network = endpoint_.network();
  OperationPool& operations = network.operations();
  OperationId id = first_;
  while (id != kNoOperation && operations[id].is_done) id = operations[id].next;
  if (id == kNoOperation || !operations[id].is_local_flush) return;
  // When it has finished, the network calls this again for the next one.
  operations[id].is_local_flush = false;
  --flushes_;
  network.answer(id, network.now());
}

void SimLane::unlink(OperationId id) {
  OperationPool& operations = endpoint_.network().operations();
  const Operation& operation = operations[id];
  (operation.previous == kNoOperation ? first_ : operations[operation.previous].next) =
      operation.next;
  (operation.next == kNoOperation ? last_ : operations[operation.next].previous) =
      operation.previous;
  --count_;
}

void SimLane::settle(OperationId id, Status pending) {
  OperationPool& operations = endpoint_.network().operations();
  unlink(id);
  Operation& operation = operations[id];
  operation.lane = nullptr;
  Status outcome = std::move(pending);
  if (operation.is_done) {
    outcome =
        operation.is_deregistered
            ? Status(Code::kNotFound, "the peer has deregistered the region").with_peer(peer())
            : Status::ok();
  }
  fire(operation.completion, std::move(outcome));
  operations.drop_reference(id);
}

template <typename Pending>
std::size_t SimLane::settle_all(Pending&& pending) {
  std::size_t settled = 0;
  for (; first_ != kNoOperation; ++settled) settle(first_, pending());
  flushes_ = 0;
  return settled;
}

std::size_t SimLane::fail_pending() {
  if (first_ == kNoOperation || endpoint_.peers().is_present(peer())) return 0;
  return settle_all([this] { return endpoint_.peers().check(peer()); });
}

std::size_t SimLane::progress() {
  OperationPool& operations = endpoint_.network().operations();
  std::size_t completed = fail_pending();
  for (OperationId id = first_; id != kNoOperation;) {
    const OperationId next = operations[id].next;
    if (operations[id].is_done) {
      settle(id, Status::ok());
      ++completed;
    }
    id = next;
  }
  return completed;
}

void SimLane::close() noexcept {
  progress();
  is_closed_ = true;
  settle_all([this] { return Status(Code::kClosed, "the lane was closed").with_peer(peer()); });
}

}  // namespace dunlin::transport::sim
