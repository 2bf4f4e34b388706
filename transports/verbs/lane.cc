#include "transports/verbs/lane.h"

#include "transports/verbs/region.h"

namespace dunlin::transport::verbs {
namespace {

// What a flush reads back: any word of the mailbox.
constexpr std::uint64_t kFlushBytes = sizeof(std::uint64_t);

}  // namespace

VerbsLane::VerbsLane(Engine& engine, const Link& link, Connection& connection, LaneKind kind)
    : engine_(engine),
      link_(link),
      out_(connection.lane(kind)),
      counters_(engine.context().counters.peer(link.peer())) {}

Status VerbsLane::check_open() const {
  if (is_closed_) return Status(Code::kClosed, "the lane is closed").with_peer(link_.peer());
  DUNLIN_TRY(out_.failure());
  return engine_.context().peers.check(link_.peer());
}

Status VerbsLane::check_target(const LocalSlice& from, const RemoteSlice& to) const {
  DUNLIN_TRY(check_put_to_import(link_, from, to));
  if (from.size() == 0 || from.region()->at(engine_.context().index) != nullptr)
    return Status::ok();
  return Status(Code::kUnavailable, "the memory to put from is not registered with verbs")
      .with_peer(link_.peer());
}

Operation* VerbsLane::claim(const char* name, Completion* completion) {
  Operation* const operation = out_.claim();
  if (operation == nullptr) {
    ++counters_.busy;
    return nullptr;
  }
  operation->name = name;
  operation->completion = completion;
  operation->is_signaled = completion != nullptr;
  return operation;
}

void VerbsLane::attach_bytes(Operation& operation, const LocalSlice& from, const RemoteSlice& to) {
  ++counters_.puts;
  if (from.size() == 0) return;
  counters_.put_bytes += from.size();
  const auto& region = static_cast<const VerbsRemoteRegion&>(*to.region());
  const auto& own = static_cast<const VerbsRegion&>(*from.region()->at(engine_.context().index));
  operation.moves_bytes = true;
  operation.local = reinterpret_cast<std::uint64_t>(from.data());
  operation.local_key = own.local_key();
  operation.remote = region.address() + to.offset();
  operation.remote_key = region.key();
  operation.size = from.size();
}

void VerbsLane::attach_notification(Operation& operation, const Notification& notification) {
  ++counters_.notifies;
  operation.notifies = true;
  operation.immediate = static_cast<std::uint32_t>(notification.id);
  out_.record().set(notification);
}

Status VerbsLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_target(from, to));
  if (from.size() == 0) {
    ++counters_.puts;
    fire(completion);
    return Status::ok();
  }
  Operation* const operation = claim("put", completion);
  if (operation == nullptr) return Status::busy();
  attach_bytes(*operation, from, to);
  out_.launch();
  return Status::ok();
}

Status VerbsLane::put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                             Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_target(from, to));
  DUNLIN_TRY(check_notification(notification, engine_.context().board.size()));
  Operation* const operation = claim("put with notification", completion);
  if (operation == nullptr) return Status::busy();
  attach_bytes(*operation, from, to);
  attach_notification(*operation, notification);
  out_.launch();
  return Status::ok();
}

Status VerbsLane::notify(const Notification& notification, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_notification(notification, engine_.context().board.size()));
  Operation* const operation = claim("notification", completion);
  if (operation == nullptr) return Status::busy();
  attach_notification(*operation, notification);
  out_.launch();
  return Status::ok();
}

Status VerbsLane::flush(Visibility visibility, Completion* completion) {
  DUNLIN_TRY(check_open());
  if (visibility == Visibility::kLocal && out_.is_empty()) {
    fire(completion);
    return Status::ok();
  }
  Operation* const operation = claim("flush", completion);
  if (operation == nullptr) return Status::busy();
  operation->moves_bytes = true;
  if (visibility == Visibility::kRemote) {
    operation->opcode = IBV_WR_RDMA_READ;
    operation->size = kFlushBytes;
  }
  out_.launch();
  return Status::ok();
}

std::size_t VerbsLane::progress() {
  const std::uint64_t before = out_.completed();
  engine_.progress();
  return out_.completed() - before;
}

void VerbsLane::close() noexcept {
  if (is_closed_) return;
  is_closed_ = true;
  out_.shut(Status(Code::kClosed, "closed before the peer had taken it").with_peer(link_.peer()));
}

}  // namespace dunlin::transport::verbs
