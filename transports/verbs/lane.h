// The lane of the verbs transport: checks what is asked for and turns it into operations of an
// Outbound. Large puts of a StripingLane go over rails (rails.h).
#pragma once

#include "transports/lane.h"
#include "transports/verbs/engine.h"

namespace dunlin::transport::verbs {

class VerbsRegion;
class VerbsRemoteRegion;

class VerbsLane : public Lane, public RemoteReads, public RemoteAtomics {
 public:
  VerbsLane(Engine& engine, const Link& link, Connection& connection, LaneKind kind);
  ~VerbsLane() override { close(); }

  Status put(LocalSlice from, RemoteSlice to, Completion* completion) override;
  Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                    Completion* completion) override;
  Status notify(const Notification& notification, Completion* completion) override;
  Status flush(Visibility visibility, Completion* completion) override;
  RemoteReads* reads() override { return this; }
  RemoteAtomics* atomics() override { return out_.atomics() ? this : nullptr; }
  std::size_t progress() override;
  void close() noexcept override;

  Status get(RemoteSlice from, LocalSlice to, Completion* completion) override;
  Status fetch_add(RemoteSlice word, std::uint64_t operand, std::uint64_t* before,
                   Completion* completion) override;
  Status compare_swap(RemoteSlice word, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t* before, Completion* completion) override;
  AtomicScope scope() const override { return *out_.atomics(); }

 protected:
  // Without a call where all is well: nanoseconds count here.
  Status check_open() const;
  Status check_slices(const LocalSlice& local, const RemoteSlice& remote) const;
  Status check_original(const RemoteSlice& remote) const;
  // Not of empty slices.
  const VerbsRegion& region_of(const LocalSlice& local) const;
  static const VerbsRemoteRegion& region_of(const RemoteSlice& remote);
  // Whether a put there has to say that it has landed.
  static bool wants_landing(const RemoteSlice& to);
  Operation* claim(const char* name, Completion* completion);
  Status attach_put(Operation& operation, const LocalSlice& from, const RemoteSlice& to);
  void attach_bytes(Operation& operation, const LocalSlice& local, const RemoteSlice& remote);
  void attach_notification(Operation& operation, const Notification& notification);
  Status post_atomic(const char* name, Action action, const RemoteSlice& word,
                     std::uint64_t operand, std::uint64_t desired, std::uint64_t* before,
                     Completion* completion);

  Engine& engine_;
  const Link& link_;
  Outbound& out_;
  PeerCounters& counters_;
  bool is_closed_ = false;
};

// A data lane where large puts may be striped over rails.
class StripingLane final : public VerbsLane {
 public:
  using VerbsLane::VerbsLane;
  ~StripingLane() override { close(); }

  Status put(LocalSlice from, RemoteSlice to, Completion* completion) override;
  Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                    Completion* completion) override;
  std::size_t progress() override;

 private:
  // Both ends were checked, and aren't empty.
  bool can_stripe(const LocalSlice& from, const RemoteSlice& to) const;
  void launch_striped(Operation& operation, const LocalSlice& from, const RemoteSlice& to);
};

}  // namespace dunlin::transport::verbs
