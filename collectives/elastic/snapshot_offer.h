// SnapshotOffer: what a member publishes of a model that newcomers read (model_snapshot.h).
#pragma once

#include <cstdint>
#include <span>

#include "runtime/bytes.h"
#include "runtime/status.h"

namespace dunlin::collective {

struct SnapshotOffer {
  std::uint64_t version = 0;
  std::uint64_t size = 0;  // of the model, in bytes
  Bytes descriptor;

  Bytes encode() const { return ByteWriter().number(version).number(size).blob(descriptor).take(); }
  static Result<SnapshotOffer> decode(std::span<const std::byte> bytes) {
    ByteReader reader(bytes);
    SnapshotOffer offer;
    offer.version = reader.number<std::uint64_t>();
    offer.size = reader.number<std::uint64_t>();
    offer.descriptor = reader.bytes();
    if (!reader.at_end()) return Status(Code::kCorrupted, "a snapshot's offer");
    return offer;
  }
};

}  // namespace dunlin::collective
