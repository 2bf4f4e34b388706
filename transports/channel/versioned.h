// VersionedWriter and VersionedReader: an edge without flow control, for BSP and ASYNC, the two
// weaker modes of ASAP (section 6.2). They exist for comparison with NOTIFY-ACK (queue.h).
//
// One put writes a frame to a slot: a version number, the payload, and a digest of both. The writer
// never waits. It overwrites the slot that it wrote `depth` versions ago, whether or not that
// version was read. The reader therefore copies the payload out of the slot, and accepts it only if
// the copy has the digest that stands in the slot; otherwise the read was torn. ASAP's footer
// repeats the version instead. That finds torn reads only if the bytes of a put land in order,
// which lanes do not promise. Owner thread only. The exchange must outlive both ends.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "transports/channel/slot_exchange.h"

namespace dunlin::transport {

inline constexpr std::size_t kVersionBytes = sizeof(std::uint64_t);

// The size of a frame, and so of a slot: version, payload padded to whole words, digest.
constexpr std::size_t versioned_slot_bytes(std::size_t payload_bytes) {
  return (payload_bytes + kVersionBytes - 1) / kVersionBytes * kVersionBytes + 2 * kVersionBytes;
}

class VersionedWriter {
 public:
  VersionedWriter(SlotExchange& exchange, OutSlots& edge)
      : edge_(edge), depth_(exchange.options().depth) {}

  // Writes the frame `framed` of versioned_slot_bytes() bytes, which stamp() has completed with
  // `version`. Versions count up from 1. `framed` may be reused once `completion` has fired.
  Status try_write(LocalSlice framed, std::uint64_t version, Completion* completion);
  // Completes a frame whose `payload_bytes` of payload are in place: writes the version before them
  // and the digest behind them.
  static void stamp(std::span<std::byte> framed, std::size_t payload_bytes, std::uint64_t version);

  Rank peer() const { return edge_.to; }

 private:
  OutSlots& edge_;
  std::uint32_t depth_;
};

class VersionedReader {
 public:
  enum class Outcome : std::uint8_t {
    kFresh,  // copied a version that was not read before
    kStale,  // there is no new version
    kTorn,   // there is a new version, but it was overwritten during the copy
  };
  explicit VersionedReader(InSlots& edge) : edge_(edge) {}

  // Copies a version that was not read before into `payload`, whose size is that of the payload.
  // Its contents are undefined unless the outcome is kFresh. With `step`, reads the slot that
  // version `step` is written to, whichever version it holds. Without `step`, reads the newest
  // version of all slots.
  Outcome read(std::span<std::byte> payload, std::optional<std::uint64_t> step);
  // Copies the payload of the frame at `slot`, in any memory that frames are written to. Returns
  // the frame's version, or nothing if the read was torn. `payload` may be the frame's own payload;
  // its bytes then stay as they are.
  static std::optional<std::uint64_t> copy(std::span<std::byte> payload, const std::byte* slot);
  std::uint64_t version() const { return version_; }  // of the last fresh read
  Rank peer() const { return edge_.from; }

 private:
  const std::byte* newest(std::span<std::byte* const> slots) const;

  InSlots& edge_;
  std::uint64_t version_ = 0;
};

}  // namespace dunlin::transport
