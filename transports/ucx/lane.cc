#include "transports/ucx/lane.h"

#include "transports/ucx/engine.h"

namespace dunlin::transport::ucx {

UcxLane::UcxLane(Engine& engine, const Link& link, Connection& connection, LaneKind kind)
    : engine_(engine),
      link_(link),
      connection_(connection),
      path_(connection.path(kind)),
      kind_(kind),
      counters_(engine.context().counters.peer(link.peer())),
      depth_(static_cast<std::uint64_t>(engine.context().config.ucx_queue_depth)) {
  ring_ = std::make_unique<Operation[]>(depth_);
  last_put_ = path_.sent;  // messages of an earlier lane on this path are not waited for
  visible_up_to_ = path_.sent;
  path_.lane = this;
}

UcxLane::~UcxLane() {
  close();
  path_.lane = nullptr;
}

Status UcxLane::check_open() const {
  if (is_closed_) return Status(Code::kClosed, "the lane is closed").with_peer(link_.peer());
  DUNLIN_TRY(failure());
  return engine_.context().peers.check(link_.peer());
}

Status UcxLane::failure() const {
  if (!path_.failure.is_ok()) return path_.failure;
  if (path_.error)
    return to_status("the connection is broken", *path_.error).with_peer(link_.peer());
  return Status::ok();
}

Status UcxLane::check_slices(const LocalSlice& local, const RemoteSlice& remote) const {
  DUNLIN_TRY(check_transfer_with_import(link_, local, remote));
  return check_local(link_, local, engine_.context().index, "ucx");
}

bool UcxLane::goes_by_rma(const RemoteSlice& to) const {
  const auto& region = static_cast<const UcxRemoteRegion&>(*to.region());
  return region.key(kind_) != nullptr && to.size() > kEagerLimitRma;
}

Status UcxLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  if (from.size() == 0) {
    ++counters_.puts;
    fire(completion);
    return Status::ok();
  }
  Operation* const operation = claim(completion);
  if (operation == nullptr) return Status::busy();
  if (!goes_by_rma(to)) attach_message(*operation, MessageKind::kPut);
  attach_bytes(*operation, from, to);
  return launch(*operation);
}

Status UcxLane::put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                           Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  DUNLIN_TRY(check_notification(notification, connection_.peer_cells()));
  Operation* const operation = claim(completion);
  if (operation == nullptr) return Status::busy();
  attach_message(*operation, MessageKind::kNotify);
  operation->header.set_notification(notification);
  ++counters_.notifies;
  if (from.size() == 0) {
    ++counters_.puts;
  } else {
    attach_bytes(*operation, from, to);
  }
  return launch(*operation);
}

Status UcxLane::notify(const Notification& notification, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_notification(notification, connection_.peer_cells()));
  Operation* const operation = claim(completion);
  if (operation == nullptr) return Status::busy();
  attach_message(*operation, MessageKind::kNotify);
  operation->header.set_notification(notification);
  ++counters_.notifies;
  return launch(*operation);
}

Status UcxLane::flush(Visibility visibility, Completion* completion) {
  DUNLIN_TRY(check_open());
  Operation* const operation = claim(completion);
  if (operation == nullptr) return Status::busy();
  operation->is_local_flush = visibility == Visibility::kLocal;
  operation->is_remote_flush = visibility == Visibility::kRemote;
  if (operation->is_remote_flush) attach_message(*operation, MessageKind::kFlush);
  return launch(*operation);
}

Status UcxLane::get(RemoteSlice from, LocalSlice to, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(to, from));
  if (to.size() == 0) {
    ++counters_.gets;
    fire(completion);
    return Status::ok();
  }
  Operation* const operation = claim(completion);
  if (operation == nullptr) return Status::busy();
  attach_message(*operation, MessageKind::kRead);
  ++counters_.gets;
  counters_.get_bytes += to.size();
  operation->into = to.data();
  operation->unread = to.size();
  operation->header.region = static_cast<const UcxRemoteRegion&>(*from.region()).id();
  operation->header.offset = from.offset();
  return launch(*operation);
}

Operation* UcxLane::claim(Completion* completion) {
  if (tail_ - head_ == depth_) {
    ++counters_.busy;
    return nullptr;
  }
  Operation& operation = at(tail_);
  operation = Operation{};
  operation.lane = this;
  operation.path = &path_;
  operation.completion = completion;
  return &operation;
}

void UcxLane::attach_message(Operation& operation, MessageKind kind) {
  operation.has_message = true;
  MessageHeader& header = operation.header;
  header.token = connection_.peer_token();
  header.source = static_cast<std::uint32_t>(engine_.context().self.value());
  header.version = kWireVersion;
  header.kind = kind;
}

void UcxLane::attach_bytes(Operation& operation, const LocalSlice& from, const RemoteSlice& to) {
  ++counters_.puts;
  counters_.put_bytes += from.size();
  operation.source = static_cast<const UcxRegion*>(from.region()->at(engine_.context().index));
  const auto& region = static_cast<const UcxRemoteRegion&>(*to.region());
  operation.header.region = region.id();
  operation.header.offset = to.offset();
  operation.header.size = to.size();
  if (goes_by_rma(to)) {
    start_rma(operation, from, to);
    return;
  }
  operation.payload = from.data();
  operation.payload_size = from.size();
  operation.may_be_fetched = region.is_kept();
}

Status UcxLane::launch(Operation& operation) {
  ++tail_;
  if (operation.has_message && has_unflushed_rma_) start_flush(operation);
  send_in_turn();
  return Status::ok();
}

std::size_t UcxLane::progress() {
  const std::uint64_t before = completed_;
  engine_.progress();
  return completed_ - before;
}

void UcxLane::abort() {
  for (std::uint64_t position = head_; position != tail_; ++position) {
    at(position).is_flushing = false;
    finish_if_done(at(position));
  }
  unsent_ = tail_;
}

void UcxLane::close() noexcept {
  if (is_closed_) return;
  is_closed_ = true;
  engine_.drain([this] { return is_empty(); }, kCloseGrace);
  if (is_empty()) return;
  // The peer does not respond. Only closing the endpoint by force makes UCX release the buffers
  // that it holds; the peer is told over the other path that this is not a death.
  connection_.announce_close(kind_,
                             kind_ == LaneKind::kData ? LaneKind::kControl : LaneKind::kData);
  engine_.progress();
  connection_.sever(kind_, Status(Code::kClosed, "the lane was closed before the peer had taken it")
                               .with_peer(link_.peer()));
  engine_.drain([this] { return is_empty(); }, kCancelGrace);
  if (!is_empty()) release_ring();
}

// UCX still holds requests that point into the ring, so the ring is kept without its lane.
void UcxLane::release_ring() {
  for (std::uint64_t position = head_; position != tail_; ++position) {
    Operation& operation = at(position);
    operation.lane = nullptr;
    if (operation.is_done) continue;
    if (operation.source != nullptr) operation.kept = operation.source->mapped();
    fire(std::exchange(operation.completion, nullptr), path_.failure);
  }
  head_ = unsent_ = tail_;
  engine_.keep(std::move(ring_));
}

}  // namespace dunlin::transport::ucx
