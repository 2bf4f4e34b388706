#include "transports/channel/versioned.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>

namespace dunlin::transport {
namespace {

// The slot is written by another process while we look: every access is atomic, word by word.
std::uint64_t load(const std::byte* at, std::memory_order order) {
  auto* word = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(at));
  return std::atomic_ref<std::uint64_t>(*word).load(order);
}

void copy_words(std::byte* to, const std::byte* from, std::size_t size) {
  std::size_t done = 0;
  for (; done + sizeof(std::uint64_t) <= size; done += sizeof(std::uint64_t)) {
    const std::uint64_t word = load(from + done, std::memory_order_relaxed);
    std::memcpy(to + done, &word, sizeof word);
  }
  for (; done < size; ++done) {
    auto* byte = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(from + done));
    to[done] = std::byte{std::atomic_ref<unsigned char>(*byte).load(std::memory_order_relaxed)};
  }
}

}  // namespace

void VersionedWriter::stamp(std::span<std::byte> framed, std::uint64_t version) {
  std::memcpy(framed.data(), &version, sizeof version);
  std::memcpy(framed.data() + framed.size() - sizeof version, &version, sizeof version);
}

Status VersionedWriter::try_write(LocalSlice framed, std::uint64_t version,
                                  Completion* completion) {
  Lane& lane = edge_.link->data();
  const RemoteSlice slot = edge_.slots[version % depth_];
  const std::size_t payload = framed.size() - 2 * kVersionBytes;
  const struct {
    std::size_t offset, size;
  } parts[] = {
      {0, kVersionBytes}, {kVersionBytes, payload}, {kVersionBytes + payload, kVersionBytes}};
  for (; step_ < 3; ++step_) {
    DUNLIN_ASSIGN(const LocalSlice from, framed.slice(parts[step_].offset, parts[step_].size));
    DUNLIN_ASSIGN(const RemoteSlice to, slot.slice(parts[step_].offset, parts[step_].size));
    DUNLIN_TRY(lane.put(from, to, nullptr));
  }
  DUNLIN_TRY(lane.flush(Visibility::kLocal, completion));
  step_ = 0;
  return Status::ok();
}

VersionedReader::VersionedReader(SlotExchange& exchange, InSlots& edge)
    : edge_(edge), footer_offset_(exchange.options().slot_bytes - kVersionBytes) {}

const std::byte* VersionedReader::newest(std::span<std::byte* const> slots) const {
  const std::byte* best = nullptr;
  std::uint64_t best_version = version_;
  for (const std::byte* slot : slots) {
    const std::uint64_t version = load(slot, std::memory_order_acquire);
    if (version > best_version) {
      best = slot;
      best_version = version;
    }
  }
  return best;
}

std::uint64_t VersionedReader::footer(const std::byte* slot) const {
  return load(slot + footer_offset_, std::memory_order_acquire);
}

VersionedReader::Outcome VersionedReader::read(std::span<std::byte> payload,
                                               std::optional<std::uint64_t> step) {
  const std::span<std::byte* const> slots(edge_.slots);
  const std::byte* slot = newest(step ? slots.subspan(*step % slots.size(), 1) : slots);
  if (slot == nullptr) return Outcome::kStale;
  const std::uint64_t header = load(slot, std::memory_order_acquire);
  if (footer(slot) != header) return Outcome::kTorn;
  copy_words(payload.data(), slot + kVersionBytes, payload.size());
  std::atomic_thread_fence(std::memory_order_acquire);
  if (load(slot, std::memory_order_relaxed) != header || footer(slot) != header)
    return Outcome::kTorn;
  version_ = header;
  return Outcome::kFresh;
}

}  // namespace dunlin::transport
