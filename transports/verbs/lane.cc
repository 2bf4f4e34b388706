#include "transports/verbs/lane.h"

#include "transports/verbs/path/posting.h"
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
  return is_local_valid(local, index) ? Status::ok() : check_local(link_, local, index, "verbs");
}

Status VerbsLane::check_original(const RemoteSlice& remote) const {
  if (remote.size() == 0 || !region_of(remote).is_shadow()) return Status::ok();
  return Status(Code::kUnavailable,
                "the peer's GPU memory is staged through host memory: it takes puts, but no gets "
                "and atomics")
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

Status VerbsLane::check_room(std::uint64_t operations) {
  if (out_.takes(operations)) return Status::ok();
  DUNLIN_TRY(out_.wake());
  if (out_.takes(operations)) return Status::ok();
  ++counters_.busy;
  return Status::busy();
}

void VerbsLane::read_back() {
  if (const auto place = gpu_writes_.take()) out_.read_back(place->address, place->key);
}

Status VerbsLane::begin_write(const RemoteSlice& to, std::uint64_t operations) {
  const VerbsRemoteRegion& region = region_of(to);
  if (!region.is_in_gpu_memory()) return Status::ok();
  if (gpu_writes_.is_at_another(region.gpu())) {
    read_back();
    DUNLIN_TRY(check_room(operations));
  }
  gpu_writes_.note(region.gpu(), {region.address() + to.offset(), region.key()});
  return Status::ok();
}

Transfer VerbsLane::transfer_of(const LocalSlice& local, const RemoteSlice& remote) const {
  const VerbsRemoteRegion& region = region_of(remote);
  const VerbsRegion& own = region_of(local);
  Transfer transfer;
  transfer.local = own.local_address(local);
  transfer.local_key = own.local_key();
  transfer.is_on_gpu = own.gpu() != nullptr && !own.gpu()->is_staged();
  transfer.remote = region.address() + remote.offset();
  transfer.remote_key = region.key();
  transfer.size = local.size();
  return transfer;
}

Landing VerbsLane::landing_of(const RemoteSlice& to) {
  return {region_of(to).id(), to.offset(), to.size()};
}

Status VerbsLane::begin_put(const LocalSlice& from) {
  if (from.size() != 0) {
    if (GpuMemory* const gpu = region_of(from).gpu(); gpu != nullptr)
      DUNLIN_TRY(gpu->fetch(offset_of(from), from.size()));
  }
  ++counters_.puts;
  counters_.put_bytes += from.size();
  return Status::ok();
}

Status VerbsLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  if (from.size() == 0) {
    ++counters_.puts;
    fire(completion);
    return Status::ok();
  }
  DUNLIN_TRY(check_room(1));
  DUNLIN_TRY(begin_write(to, 1));
  DUNLIN_TRY(begin_put(from));
  if (wants_landing(to)) {
    out_.put_with_landing(transfer_of(from, to), landing_of(to), completion);
  } else {
    out_.put(transfer_of(from, to), completion);
  }
  return Status::ok();
}

// Flat, as Outbound::pump() is.
[[gnu::hot, gnu::flatten]] Status VerbsLane::put_notify(LocalSlice from, RemoteSlice to,
                                                        const Notification& notification,
                                                        Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  DUNLIN_TRY(check_notification(notification, engine_.context().board.size()));
  // The landing note takes one record, and the notification another.
  const bool is_split = wants_landing(to);
  const std::uint64_t operations = is_split ? 2 : 1;
  DUNLIN_TRY(check_room(operations));
  if (to.size() != 0) DUNLIN_TRY(begin_write(to, operations));
  DUNLIN_TRY(begin_put(from));
  ++counters_.notifies;
  const Transfer transfer = from.size() == 0 ? Transfer{} : transfer_of(from, to);
  if (is_split) {
    out_.put_notify_with_landing(transfer, landing_of(to), notification, completion);
  } else {
    out_.put_notify(transfer, notification, completion);
  }
  return Status::ok();
}

[[gnu::hot, gnu::flatten]] Status VerbsLane::notify(const Notification& notification,
                                                    Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_notification(notification, engine_.context().board.size()));
  DUNLIN_TRY(check_room(1));
  ++counters_.notifies;
  out_.notify(notification, completion);
  return Status::ok();
}

Status VerbsLane::flush(Visibility visibility, Completion* completion) {
  DUNLIN_TRY(check_open());
  if (visibility == Visibility::kLocal && out_.is_empty()) {
    fire(completion);
    return Status::ok();
  }
  DUNLIN_TRY(check_room(1));
  if (visibility == Visibility::kRemote) {
    read_back();
    DUNLIN_TRY(check_room(1));
    out_.flush_remote(completion);
  } else {
    out_.flush_local(completion);
  }
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
  DUNLIN_TRY(check_room(1));
  ++counters_.gets;
  counters_.get_bytes += from.size();
  out_.get(transfer_of(to, from), {region_of(to).gpu(), offset_of(to)}, completion);
  return Status::ok();
}

Status VerbsLane::post_atomic(const char* name, const RemoteSlice& word, AtomicAccess access,
                              Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_word(link_, word));
  DUNLIN_TRY(check_import(link_, word));
  DUNLIN_TRY(check_original(word));
  const VerbsRemoteRegion& region = region_of(word);
  access.remote = region.address() + word.offset();
  access.remote_key = region.key();
  if (access.remote % sizeof(std::uint64_t) != 0) {
    return Status(Code::kInvalidArgument,
                  "the word of an atomic is not aligned: the wrapped memory that holds it does not "
                  "begin at a multiple of 8")
        .with_peer(link_.peer());
  }
  DUNLIN_TRY(check_room(1));
  DUNLIN_TRY(begin_write(word, 1));
  ++counters_.atomics;
  out_.atomic(name, access, completion);
  return Status::ok();
}

Status VerbsLane::fetch_add(RemoteSlice word, std::uint64_t operand, std::uint64_t* before,
                            Completion* completion) {
  AtomicAccess access;
  access.action = Action::kFetchAdd;
  access.operand = operand;
  access.before = before;
  return post_atomic("fetch-and-add", word, access, completion);
}

Status VerbsLane::compare_swap(RemoteSlice word, std::uint64_t expected, std::uint64_t desired,
                               std::uint64_t* before, Completion* completion) {
  AtomicAccess access;
  access.action = Action::kCompareSwap;
  access.operand = expected;
  access.desired = desired;
  access.before = before;
  return post_atomic("compare-and-swap", word, access, completion);
}

std::size_t VerbsLane::progress() {
  const std::uint64_t before = out_.completed();
  engine_.progress();
  return out_.completed() - before;
}

bool StripingLane::can_stripe(const LocalSlice& from, const RemoteSlice& to) const {
  return out_.rails() != nullptr && region_of(from).gpu() == nullptr && !region_of(to).is_on_gpu();
}

void StripingLane::post_striped(const LocalSlice& from, const RemoteSlice& to,
                                const Notification* notification, Completion* completion) {
  ++counters_.puts;
  counters_.put_bytes += from.size();
  if (notification != nullptr) ++counters_.notifies;
  const VerbsRemoteRegion& region = region_of(to);
  StripedPut put;
  put.local = reinterpret_cast<std::uint64_t>(from.data());
  put.remote = region.address() + to.offset();
  put.size = from.size();
  put.local_keys = region_of(from).local_keys();
  put.remote_keys = region.keys();
  out_.put_striped(put, notification, completion);
}

Status StripingLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  if (from.size() <= engine_.stripe_above()) return VerbsLane::put(from, to, completion);
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  if (!can_stripe(from, to)) return VerbsLane::put(from, to, completion);
  DUNLIN_TRY(check_room(1));
  post_striped(from, to, nullptr, completion);
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
  DUNLIN_TRY(check_room(1));
  post_striped(from, to, &notification, completion);
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
  out_.shut(Status(Code::kClosed, "the lane was closed before the peer had taken it")
                .with_peer(link_.peer()));
}

}  // namespace dunlin::transport::verbs
