#include <dunlin/lane.h>

#include <utility>

#include "bindings/cpp/internal.h"

namespace dunlin {
namespace {

Status unavailable(const char* what, Rank peer) {
  return Status(Code::kUnavailable, std::string("the lane's transport has no ") + what)
      .with_peer(peer);
}

}  // namespace

struct Lane::Impl {
  std::shared_ptr<JobState> job;
  Rank peer;
  transport::Lane* lane = nullptr;  // the fabric's
  transport::RemoteReads* reads = nullptr;
  transport::RemoteAtomics* atomics = nullptr;
};

Lane::Lane(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Lane::Lane(Lane&&) noexcept = default;
Lane& Lane::operator=(Lane&&) noexcept = default;
Lane::~Lane() = default;

Result<Lane> Lane::open(Job& job, Rank peer, LaneKind kind) {
  DUNLIN_ASSIGN(transport::Link* const link, Internal::fabric(job).link(peer));
  transport::Lane& lane = kind == LaneKind::kData ? link->data() : link->control();
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  impl->peer = peer;
  impl->lane = &lane;
  impl->reads = lane.reads();
  impl->atomics = lane.atomics();
  return Lane(std::move(impl));
}

Rank Lane::peer() const {
  return impl_->peer;
}

Status Lane::put(const MemorySlice& from, const RemoteMemorySlice& to, Completion* completion) {
  return impl_->lane->put(Internal::internal(from), Internal::internal(to), completion);
}

Status Lane::put_notify(const MemorySlice& from, const RemoteMemorySlice& to,
                        const Notification& notification, Completion* completion) {
  return impl_->lane->put_notify(Internal::internal(from), Internal::internal(to),
                                 Internal::internal(notification), completion);
}

Status Lane::notify(const Notification& notification, Completion* completion) {
  return impl_->lane->notify(Internal::internal(notification), completion);
}

Status Lane::flush(Visibility visibility, Completion* completion) {
  return impl_->lane->flush(visibility == Visibility::kLocal ? transport::Visibility::kLocal
                                                             : transport::Visibility::kRemote,
                            completion);
}

Status Lane::get(const RemoteMemorySlice& from, const MemorySlice& to, Completion* completion) {
  if (impl_->reads == nullptr) return unavailable("remote reads", impl_->peer);
  return impl_->reads->get(Internal::internal(from), Internal::internal(to), completion);
}

bool Lane::has_get() const {
  return impl_->reads != nullptr;
}

Status Lane::fetch_add(const RemoteMemorySlice& word, std::uint64_t operand, std::uint64_t* before,
                       Completion* completion) {
  if (impl_->atomics == nullptr) return unavailable("remote atomics", impl_->peer);
  return impl_->atomics->fetch_add(Internal::internal(word), operand, before, completion);
}

Status Lane::compare_swap(const RemoteMemorySlice& word, std::uint64_t expected,
                          std::uint64_t desired, std::uint64_t* before, Completion* completion) {
  if (impl_->atomics == nullptr) return unavailable("remote atomics", impl_->peer);
  return impl_->atomics->compare_swap(Internal::internal(word), expected, desired, before,
                                      completion);
}

AtomicScope Lane::atomic_scope() const {
  if (impl_->atomics == nullptr) return AtomicScope::kNone;
  return impl_->atomics->scope() == transport::AtomicScope::kSystem ? AtomicScope::kSystem
                                                                    : AtomicScope::kTransport;
}

Status Lane::wait(const Completion& completion, Duration timeout) {
  return impl_->job->fabric->wait(
      [&] { return completion.is_done() ? completion.status() : Status::busy(); },
      transport::Awaiting{
          [&] {
            return std::vector<transport::Awaited>{{impl_->peer, "the completion of an operation"}};
          },
          [&] { return impl_->peer; }},
      timeout);
}

}  // namespace dunlin
