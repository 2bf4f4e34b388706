#include "collectives/rma/snapshot.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "transports/channel/versioned.h"

namespace dunlin::collective {

using transport::kCacheLine;
using transport::kVersionBytes;
using transport::LocalSlice;
using transport::RemoteSlice;
using transport::VersionedReader;
using transport::VersionedWriter;

namespace {

constexpr std::size_t kSlots = 2;
// How often a mapped snapshot is read before progress() returns kBusy.
constexpr int kAttempts = 4;

// A slot holds its version, p, and the tensor.
constexpr std::size_t payload_bytes(std::size_t tensor_bytes) {
  return sizeof(double) + tensor_bytes;
}
constexpr std::size_t slot_bytes(std::size_t tensor_bytes) {
  return transport::versioned_slot_bytes(payload_bytes(tensor_bytes));
}
constexpr std::size_t slot_offset(std::size_t tensor_bytes, std::uint64_t slot) {
  const std::size_t stride = transport::whole_cache_lines(slot_bytes(tensor_bytes));
  return kCacheLine + slot * stride;  // after the word's cache line
}

std::atomic_ref<std::uint64_t> newest_in(std::byte* memory) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory));
}

}  // namespace

Result<std::unique_ptr<SnapshotWriter>> SnapshotWriter::create(transport::Fabric& fabric,
                                                               std::size_t tensor_bytes) {
  DUNLIN_ASSIGN(auto memory, fabric.allocate(slot_offset(tensor_bytes, kSlots)));
  std::memset(memory->data(), 0, memory->size());
  return std::unique_ptr<SnapshotWriter>(new SnapshotWriter(std::move(memory)));
}

void SnapshotWriter::publish(std::span<const std::byte> tensor, double p) {
  ++version_;
  std::byte* const slot = memory_->data() + slot_offset(tensor.size(), version_ % kSlots);
  std::memcpy(slot + kVersionBytes, &p, sizeof p);
  if (!tensor.empty()) std::memcpy(slot + kVersionBytes + sizeof p, tensor.data(), tensor.size());
  VersionedWriter::stamp({slot, slot_bytes(tensor.size())}, payload_bytes(tensor.size()), version_);
  // Pairs with the acquire in read_mapped().
  newest_in(memory_->data()).store(version_, std::memory_order_release);
}

Result<std::unique_ptr<SnapshotReader>> SnapshotReader::create(transport::Fabric& fabric,
                                                               std::size_t tensor_bytes) {
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader(tensor_bytes));
  DUNLIN_ASSIGN(reader->scratch_, fabric.allocate(slot_offset(tensor_bytes, 1)));
  return reader;
}

Status SnapshotReader::add(transport::Fabric& fabric, Rank owner,
                           std::span<const std::byte> descriptor) {
  DUNLIN_ASSIGN(transport::Link* const link, fabric.link(owner));
  DUNLIN_ASSIGN(auto region, fabric.import_region(owner, descriptor));
  if (region->size() < slot_offset(tensor_bytes_, kSlots)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a snapshot of {} bytes there, and of {} here", region->size(),
                              slot_offset(tensor_bytes_, kSlots)))
        .with_peer(owner);
  }
  owners_.push_back({owner, link, std::move(region)});
  return Status::ok();
}

Status SnapshotReader::check(std::size_t owner) const {
  const Owner& from = owners_[owner];
  if (from.region->mapped() != nullptr || from.link->data().reads() != nullptr) return Status::ok();
  return Status(Code::kUnavailable,
                fmt::format("the memory of rank {} can't be read: it is not mapped here, and its "
                            "transport has no remote reads",
                            from.rank.value()))
      .with_peer(from.rank);
}

bool SnapshotReader::copy(const std::byte* slot) {
  const std::span<std::byte> payload(scratch_->data() + kCacheLine + kVersionBytes,
                                     payload_bytes(tensor_bytes_));
  return VersionedReader::copy(payload, slot).has_value();
}

Status SnapshotReader::progress() {
  if (is_stale_) {
    if (!completion_.is_done()) return Status::busy();
    is_posted_ = is_stale_ = false;
  }
  if (std::byte* const memory = owners_[owner_].region->mapped(); memory != nullptr) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      // Pairs with the release in publish().
      const std::uint64_t newest = newest_in(memory).load(std::memory_order_acquire);
      if (copy(memory + slot_offset(tensor_bytes_, newest % kSlots))) return Status::ok();
    }
    return Status::busy();
  }
  for (;;) {
    if (is_posted_ && !completion_.is_done()) return Status::busy();
    if (!is_posted_) {
      DUNLIN_TRY(post());
      continue;
    }
    is_posted_ = false;
    if (Status status = take(); !status.is_busy()) return status;
  }
}

Status SnapshotReader::post() {
  const Owner& from = owners_[owner_];
  const bool is_word = phase_ == Phase::kWord;
  const std::size_t size = is_word ? kVersionBytes : slot_bytes(tensor_bytes_);
  const std::size_t offset = is_word ? 0 : slot_offset(tensor_bytes_, newest_ % kSlots);
  DUNLIN_ASSIGN(const RemoteSlice there, from.region->slice(offset, size));
  DUNLIN_ASSIGN(const LocalSlice here, scratch_->slice(is_word ? 0 : kCacheLine, size));
  completion_.reset();
  DUNLIN_TRY(from.link->data().reads()->get(there, here, &completion_));
  is_posted_ = true;
  return Status::ok();
}

Status SnapshotReader::take() {
  DUNLIN_TRY(completion_.status());
  if (phase_ == Phase::kWord) {
    std::memcpy(&newest_, scratch_->data(), sizeof newest_);
    phase_ = Phase::kSlot;
    return Status::busy();
  }
  phase_ = Phase::kWord;  // start over if the slot was written over meanwhile
  return copy(scratch_->data() + kCacheLine) ? Status::ok() : Status::busy();
}

std::span<const std::byte> SnapshotReader::tensor() const {
  return {scratch_->data() + kCacheLine + kVersionBytes + sizeof(double), tensor_bytes_};
}

double SnapshotReader::p() const {
  double p;
  std::memcpy(&p, scratch_->data() + kCacheLine + kVersionBytes, sizeof p);
  return p;
}

}  // namespace dunlin::collective
