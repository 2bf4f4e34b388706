// The lane of the verbs transport: checks what it is asked for, finds addresses and keys of the
// slices, and hands the rest to its Outbound. Large puts of a StripingLane go over rails
// (rails/rails.h).
#pragma once

#include "transports/lane.h"
#include "transports/verbs/engine.h"
#include "transports/verbs/path/gpu_writes.h"

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
  Status failure() const override { return out_.failure(); }
  bool is_idle() const override { return out_.is_empty(); }
  std::size_t progress() override;
  void close() noexcept override;

  Status get(RemoteSlice from, LocalSlice to, Completion* completion) override;
  Status fetch_add(RemoteSlice word, std::uint64_t operand, std::uint64_t* before,
                   Completion* completion) override;
  Status compare_swap(RemoteSlice word, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t* before, Completion* completion) override;
  AtomicScope scope() const override { return *out_.atomics(); }

 protected:
  // They make no call if all is well, because nanoseconds count here.
  Status check_open() const;
  Status check_slices(const LocalSlice& local, const RemoteSlice& remote) const;
  // kUnavailable for memory that is a shadow of a GPU's: it takes no gets and atomics.
  Status check_original(const RemoteSlice& remote) const;
  // Returns kBusy unless there is room for this many operations.
  Status check_room(std::uint64_t operations);
  // The slices must not be empty.
  const VerbsRegion& region_of(const LocalSlice& local) const;
  static const VerbsRemoteRegion& region_of(const RemoteSlice& remote);
  Transfer transfer_of(const LocalSlice& local, const RemoteSlice& remote) const;
  static Landing landing_of(const RemoteSlice& to);
  // Whether a put there has to be followed by a landing note.
  static bool wants_landing(const RemoteSlice& to);
  // Prepares a write into the peer's memory, for which there is room for one operation. If it is
  // memory of another GPU than before, that takes a READ first. kBusy unless there is room for
  // `operations` more after that.
  Status begin_write(const RemoteSlice& to, std::uint64_t operations);
  // Posts a READ where this lane has written to a GPU since its last flush.
  void read_back();
  // Prepares a put: copies staged GPU memory to its shadow, and counts.
  Status begin_put(const LocalSlice& from);
  Status post_atomic(const char* name, const RemoteSlice& word, AtomicAccess access,
                     Completion* completion);

  Engine& engine_;
  const Link& link_;
  Outbound& out_;
  PeerCounters& counters_;
  GpuWrites gpu_writes_;
  bool is_closed_ = false;
};

// A data lane that stripes large puts over rails, if the peer has them.
class StripingLane final : public VerbsLane {
 public:
  using VerbsLane::VerbsLane;
  ~StripingLane() override { close(); }

  Status put(LocalSlice from, RemoteSlice to, Completion* completion) override;
  Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                    Completion* completion) override;
  std::size_t progress() override;

 private:
  // Requires slices that were checked and are not empty.
  bool can_stripe(const LocalSlice& from, const RemoteSlice& to) const;
  void post_striped(const LocalSlice& from, const RemoteSlice& to, const Notification* notification,
                    Completion* completion);
};

}  // namespace dunlin::transport::verbs
