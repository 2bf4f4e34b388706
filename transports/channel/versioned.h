// VersionedWriter and VersionedReader: the slots of an edge without flow control, for ASAP's two
// weaker modes, BSP and ASYNC (section 6.2).
//
// A payload travels behind its version number and before a digest of both, in one put. The writer
// never waits: it overwrites the slot that it wrote `depth` versions ago, read or not. The reader
// therefore copies a slot out and accepts it only if the digest of what it copied is the slot's;
// otherwise the read was torn. (ASAP's footer repeats the version, which finds torn reads only
// where the bytes of a put land in order; lanes don't promise that.) NOTIFY-ACK needs nothing of
// the kind. This exists to compare with it. Owner thread only. The exchange outlives both ends.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "transports/channel/slot_exchange.h"

namespace dunlin::transport {

inline constexpr std::size_t kVersionBytes = sizeof(std::uint64_t);

// Slot and source of a write: version, payload padded to whole words, digest.
constexpr std::size_t versioned_slot_bytes(std::size_t payload_bytes) {
  return (payload_bytes + kVersionBytes - 1) / kVersionBytes * kVersionBytes + 2 * kVersionBytes;
}

class VersionedWriter {
 public:
  VersionedWriter(SlotExchange& exchange, OutSlots& edge)
      : edge_(edge), depth_(exchange.options().depth) {}

  // Writes `framed` (versioned_slot_bytes() long, stamped with `version`). Versions grow from 1.
  // `completion`: `framed` may be reused.
  Status try_write(LocalSlice framed, std::uint64_t version, Completion* completion);
  // Puts the version before, and the digest behind, the `payload_bytes` that stand in `framed`.
  static void stamp(std::span<std::byte> framed, std::size_t payload_bytes, std::uint64_t version);

  Rank peer() const { return edge_.to; }

 private:
  OutSlots& edge_;
  std::uint32_t depth_;
};

class VersionedReader {
 public:
  enum class Outcome : std::uint8_t {
    kFresh,  // copied: a version that was not read before
    kStale,  // nothing new has come
    kTorn,   // something new was there, but it was being overwritten
  };
  explicit VersionedReader(InSlots& edge) : edge_(edge) {}

  // Copies a version that was not read before into `payload` (the payload's size); its contents are
  // undefined unless the outcome is kFresh. `step` says which slot to look into, that of version
  // `step`, whatever version it holds by now; without it, the newest version of all slots is taken.
  Outcome read(std::span<std::byte> payload, std::optional<std::uint64_t> step);
  // The same for any memory that frames are written to: copies the payload of the frame at `slot`;
  // its version, or none where it was torn. Where `payload` is the frame's own, it stays.
  static std::optional<std::uint64_t> copy(std::span<std::byte> payload, const std::byte* slot);
  std::uint64_t version() const { return version_; }  // of the last fresh read
  Rank peer() const { return edge_.from; }

 private:
  const std::byte* newest(std::span<std::byte* const> slots) const;

  InSlots& edge_;
  std::uint64_t version_ = 0;
};

}  // namespace dunlin::transport
