// Snapshots: a tensor and a scalar as their owner rank last published them. Peers read them without
// the owner rank's taking part (BlueFog's win_get).
//
// Two slots are written in turn, each with a version before and a digest behind its contents
// (channel/versioned.h). A word says which slot is the newest. A reader copies that slot and checks
// the digest: if the owner rank wrote over the slot meanwhile, it reads again. It reads the memory
// directly where that is mapped, and with the lane's remote reads otherwise. Nothing is allocated
// after the setup. Owner thread only.
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
  // Publishes a tensor and its scalar. Takes about as long as a copy.
  void publish(std::span<const std::byte> tensor, double p);
  // Peers pass it to SnapshotReader::add().
  Bytes descriptor() const { return memory_->descriptor(); }

 private:
  explicit SnapshotWriter(std::unique_ptr<transport::LocalRegion> memory)
      : memory_(std::move(memory)) {}

  std::unique_ptr<transport::LocalRegion> memory_;
  std::uint64_t version_ = 0;
};

// Reads one snapshot at a time. While a read is in progress, hand it to Fabric::keep_until_done()
// instead of destroying it.
class SnapshotReader final : public transport::KeptUntilDone {
 public:
  static Result<std::unique_ptr<SnapshotReader>> create(transport::Fabric& fabric,
                                                        std::size_t tensor_bytes);
  // Adds an owner rank. Owner ranks are numbered in the order of these calls.
  Status add(transport::Fabric& fabric, Rank owner, std::span<const std::byte> descriptor);
  // kUnavailable: the memory of this owner rank is not mapped, and its link has no remote reads.
  Status check(std::size_t owner) const;

  // Begins to read the snapshot of this owner rank. A read that is in progress is dropped.
  void start(std::size_t owner) {
    owner_ = owner;
    phase_ = Phase::kWord;
    is_stale_ = is_posted_;
  }
  // kBusy until the snapshot was read. Errors are those of the lane.
  Status progress();
  // What was read; valid until the next start().
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
  // The word is read first, then the slot that it names.
  enum class Phase : std::uint8_t { kWord, kSlot };

  // Copies a slot, which may be the scratch itself; false if it was written over meanwhile.
  bool copy(const std::byte* slot);
  Status post();
  // Handles the read that has completed; kBusy: there is more to read.
  Status take();

  std::size_t tensor_bytes_;
  std::unique_ptr<transport::LocalRegion> scratch_;  // for the word and a slot
  std::vector<Owner> owners_;
  std::size_t owner_ = 0;
  Phase phase_ = Phase::kWord;
  std::uint64_t newest_ = 0;
  bool is_stale_ = false;  // the posted read is no longer wanted
  bool is_posted_ = false;
  transport::Completion completion_;
};

}  // namespace dunlin::collective
