#include "transports/verbs/lane.h"

#include "transports/verbs/posting.h"
#include "transports/verbs/region.h"

namespace dunlin::transport::verbs {
namespace {

std::size_t offset_of(const LocalSlice& slice) {
  return static_cast<std::size_t>(slice.data() - slice.region()->data());
}

}  // namespace

VerbsLane::VerbsLane(Engine& engine, const Link& link, Connection& connection, LaneKind kind)
    : engine_(engine),
      link_(link),
      out_(connection.lane(kind)),
      counters_(engine.context().counters.peer(link.peer())) {}

Status VerbsLane::check_open() const {
  if (is_closed_) return Status(Code::kClosed, "the lane is closed").with_peer(link_.peer());
  if (!out_.failure().is_ok()) return out_.failure();
  return engine_.context().peers.check(link_.peer());
}

Status VerbsLane::check_slices(const LocalSlice& local, const RemoteSlice& remote) const {
  DUNLIN_TRY(check_transfer(link_, local, remote));
  if (local.size() != 0 && region_of(remote).is_revoked()) return check_import(link_, remote);
  const std::size_t index = engine_.context().index;
  return is_local_right(local, index) ? Status::ok() : check_local(link_, local, index, "verbs");
}

// For reads and atomics.
Status VerbsLane::check_original(const RemoteSlice& remote) const {
  if (remote.size() == 0 || !region_of(remote).is_shadow()) return Status::ok();
  return Status(Code::kUnavailable,
                "the peer's GPU memory is staged through the host's: it can be put to, but takes "
                "no gets and atomics")
      .with_peer(link_.peer());
}

const VerbsRegion& VerbsLane::region_of(const LocalSlice& local) const {
  return static_cast<const VerbsRegion&>(*local.region()->at(engine_.context().index));
}

const VerbsRemoteRegion& VerbsLane::region_of(const RemoteSlice& remote) {
  return static_cast<const VerbsRemoteRegion&>(*remote.region());
}

bool VerbsLane::wants_landing(const RemoteSlice& to) {
  return to.size() != 0 && region_of(to).wants_landings();
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

Status VerbsLane::attach_put(Operation& operation, const LocalSlice& from, const RemoteSlice& to) {
  if (from.size() != 0) {
    if (GpuMemory* const gpu = region_of(from).gpu(); gpu != nullptr)
      DUNLIN_TRY(gpu->fetch(offset_of(from), from.size()));
    attach_bytes(operation, from, to);
    if (wants_landing(to))
      out_.announce(operation, Landing{region_of(to).id(), to.offset(), to.size()});
  }
  ++counters_.puts;
  counters_.put_bytes += from.size();
  return Status::ok();
}

void VerbsLane::attach_bytes(Operation& operation, const LocalSlice& local,
                             const RemoteSlice& remote) {
  const VerbsRemoteRegion& region = region_of(remote);
  const VerbsRegion& own = region_of(local);
  operation.moves_bytes = true;
  operation.local = own.local_address(local);
  operation.local_key = own.local_key();
  operation.is_on_gpu = own.gpu() != nullptr && !own.gpu()->is_staged();
  operation.remote = region.address() + remote.offset();
  operation.remote_key = region.key();
  operation.size = local.size();
}

void VerbsLane::attach_notification(Operation& operation, const Notification& notification) {
  ++counters_.notifies;
  out_.announce(operation, notification);
}

Status VerbsLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  if (from.size() == 0) {
    ++counters_.puts;
    fire(completion);
    return Status::ok();
  }
  Operation* const operation = claim("put", completion);
  if (operation == nullptr) return Status::busy();
  DUNLIN_TRY(attach_put(*operation, from, to));
  out_.launch();
  return Status::ok();
}

// Flat, as Outbound::pump() is.
[[gnu::hot, gnu::flatten]] Status VerbsLane::put_notify(LocalSlice from, RemoteSlice to,
                                                        const Notification& notification,
                                                        Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  DUNLIN_TRY(check_notification(notification, engine_.context().board.size()));
  constexpr const char* kName = "put with notification";
  // The landing note is one record, the notification another.
  const bool is_split = wants_landing(to);
  if (is_split && !out_.has_room(2)) {
    ++counters_.busy;
    return Status::busy();
  }
  Operation* operation = claim(kName, is_split ? nullptr : completion);
  if (operation == nullptr) return Status::busy();
  DUNLIN_TRY(attach_put(*operation, from, to));
  if (is_split) {
    operation->is_tied = true;
    out_.append();
    operation = claim(kName, completion);
  }
  attach_notification(*operation, notification);
  out_.launch();
  return Status::ok();
}

[[gnu::hot, gnu::flatten]] Status VerbsLane::notify(const Notification& notification,
                                                    Completion* completion) {
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
  if (visibility == Visibility::kRemote) {
    operation->attach_flush();
  } else {
    operation->moves_bytes = true;
  }
  out_.launch();
  return Status::ok();
}

Status VerbsLane::get(RemoteSlice from, LocalSlice to, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(to, from));
  DUNLIN_TRY(check_original(from));
  if (from.size() == 0) {
    ++counters_.gets;
    fire(completion);
    return Status::ok();
  }
  Operation* const operation = claim("get", completion);
  if (operation == nullptr) return Status::busy();
  ++counters_.gets;
  counters_.get_bytes += from.size();
  operation->action = Action::kRead;
  attach_bytes(*operation, to, from);
  operation->sink = region_of(to).gpu();
  operation->sink_offset = offset_of(to);
  out_.launch();
  return Status::ok();
}

Status VerbsLane::post_atomic(const char* name, Action action, const RemoteSlice& word,
                              std::uint64_t operand, std::uint64_t desired, std::uint64_t* before,
                              Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_word(link_, word));
  DUNLIN_TRY(check_import(link_, word));
  DUNLIN_TRY(check_original(word));
  const VerbsRemoteRegion& region = region_of(word);
  if ((region.address() + word.offset()) % sizeof(std::uint64_t) != 0) {
    return Status(Code::kInvalidArgument,
                  "an atomic in wrapped memory that begins at no multiple of 8")
        .with_peer(link_.peer());
  }
  Operation* const operation = claim(name, completion);
  if (operation == nullptr) return Status::busy();
  ++counters_.atomics;
  operation->action = action;
  operation->remote = region.address() + word.offset();
  operation->remote_key = region.key();
  operation->operand = operand;
  operation->desired = desired;
  operation->before = before;
  out_.receive_former(*operation);
  out_.launch();
  return Status::ok();
}

Status VerbsLane::fetch_add(RemoteSlice word, std::uint64_t operand, std::uint64_t* before,
                            Completion* completion) {
  return post_atomic("fetch-and-add", Action::kFetchAdd, word, operand, 0, before, completion);
}

Status VerbsLane::compare_swap(RemoteSlice word, std::uint64_t expected, std::uint64_t desired,
                               std::uint64_t* before, Completion* completion) {
  return post_atomic("compare-and-swap", Action::kCompareSwap, word, expected, desired, before,
                     completion);
}

std::size_t VerbsLane::progress() {
  const std::uint64_t before = out_.completed();
  engine_.progress();
  return out_.completed() - before;
}

bool StripingLane::can_stripe(const LocalSlice& from, const RemoteSlice& to) const {
  return out_.rails() != nullptr && region_of(from).gpu() == nullptr && !region_of(to).is_on_gpu();
}

void StripingLane::launch_striped(Operation& operation, const LocalSlice& from,
                                  const RemoteSlice& to) {
  ++counters_.puts;
  counters_.put_bytes += from.size();
  const VerbsRemoteRegion& region = region_of(to);
  StripedPut put;
  put.local = reinterpret_cast<std::uint64_t>(from.data());
  put.remote = region.address() + to.offset();
  put.size = from.size();
  put.local_keys = region_of(from).local_keys();
  put.remote_keys = region.keys();
  out_.launch_striped(operation, put);
}

Status StripingLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  if (from.size() <= engine_.stripe_above()) return VerbsLane::put(from, to, completion);
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  if (!can_stripe(from, to)) return VerbsLane::put(from, to, completion);
  Operation* const operation = claim("put", completion);
  if (operation == nullptr) return Status::busy();
  launch_striped(*operation, from, to);
  return Status::ok();
}

Status StripingLane::put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                                Completion* completion) {
  if (from.size() <= engine_.stripe_above())
    return VerbsLane::put_notify(from, to, notification, completion);
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  if (!can_stripe(from, to)) return VerbsLane::put_notify(from, to, notification, completion);
  DUNLIN_TRY(check_notification(notification, engine_.context().board.size()));
  Operation* const operation = claim("put with notification", completion);
  if (operation == nullptr) return Status::busy();
  attach_notification(*operation, notification);
  launch_striped(*operation, from, to);
  return Status::ok();
}

std::size_t StripingLane::progress() {
  const std::uint64_t before = out_.completed();
  engine_.progress_with_rails();
  return out_.completed() - before;
}

void VerbsLane::close() noexcept {
  if (is_closed_) return;
  is_closed_ = true;
  out_.shut(Status(Code::kClosed, "closed before the peer had taken it").with_peer(link_.peer()));
}

}  // namespace dunlin::transport::verbs
