// Snapshots: a tensor and a scalar as their owner last published them, which peers read without the
// owner's taking part (BlueFog's win_get).
//
// Two slots are written in turns, each with a version before and a digest behind (versioned.h); a
// word says which one is the newest. A reader copies it out and looks at the digest: what the owner
// has written over meanwhile is read again. Where the owner's memory is mapped it is read there,
// else by the lane's remote reads. Nothing allocates after the setup. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::collective {

class SnapshotWriter {
 public:
  static Result<std::unique_ptr<SnapshotWriter>> create(transport::Fabric& fabric,
                                                        std::size_t tensor_bytes);
  // Costs about a copy.
  void publish(std::span<const std::byte> tensor, double p);
  // For SnapshotReader::add() at peers.
  Bytes descriptor() const { return memory_->descriptor(); }

 private:
  explicit SnapshotWriter(std::unique_ptr<transport::LocalRegion> memory)
      : memory_(std::move(memory)) {}

  std::unique_ptr<transport::LocalRegion> memory_;
  std::uint64_t version_ = 0;
};

// Reads one snapshot at a time. What is under way when it is no longer wanted has to be done first:
// Fabric::retire().
class SnapshotReader final : public transport::Retired {
 public:
  static Result<std::unique_ptr<SnapshotReader>> create(transport::Fabric& fabric,
                                                        std::size_t tensor_bytes);
  // Owners are numbered in this order.
  Status add(transport::Fabric& fabric, Rank owner, std::span<const std::byte> descriptor);
  // kUnavailable: its memory is neither mapped nor can it be read over the link.
  Status check(std::size_t owner) const;

  // From now on this one is read, and not what was before.
  void start(std::size_t owner) {
    owner_ = owner;
    phase_ = Phase::kWord;
    is_stale_ = is_posted_;
  }
  // kBusy until it is read. Errors are the lane's.
  Status progress();
  // What was read, until the next start().
  std::span<const std::byte> tensor() const;
  double p() const;

  bool is_done() const override { return !is_posted_ || completion_.is_done(); }

 private:
  explicit SnapshotReader(std::size_t tensor_bytes) : tensor_bytes_(tensor_bytes) {}
  struct Owner {
    Rank rank;
    transport::Link* link = nullptr;
    std::unique_ptr<transport::RemoteRegion> region;
  };
  // A read is of the word first, and then of the slot that it names.
  enum class Phase : std::uint8_t { kWord, kSlot };

  // Copies a slot, which may be the scratch itself; false where it was torn.
  bool copy(const std::byte* slot);
  Status post();
  // Of what was posted; kBusy: there is more to read.
  Status take();

  std::size_t tensor_bytes_;
  std::unique_ptr<transport::LocalRegion> scratch_;  // the word, and a slot
  std::vector<Owner> owners_;
  std::size_t owner_ = 0;
  Phase phase_ = Phase::kWord;
  std::uint64_t newest_ = 0;
  bool is_stale_ = false;  // what is posted is of a read that is no longer wanted
  bool is_posted_ = false;
  transport::Completion completion_;
};

}  // namespace dunlin::collective
