#include "transports/channel/versioned.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace dunlin::transport {
namespace {

// A digest that tells payloads that differ anywhere, and mixtures of them, apart except with a
// chance of 1 in 2^64. It has four independent sums, since each step depends on the previous one of
// its sum, and takes about 8 bytes per cycle.
class Digest {
 public:
  explicit Digest(std::uint64_t version) { add(0, version); }

  void add(std::size_t position, std::uint64_t word) {
    std::uint64_t& sum = sums_[position % 4];
    sum = std::rotl((sum ^ word) * kFactor, 29);
  }
  std::uint64_t value() const {
    std::uint64_t all = 0;
    for (const std::uint64_t sum : sums_) all = (std::rotl(all, 17) ^ sum) * kFactor;
    return all ^ (all >> 32);
  }

 private:
  static constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, odd
  std::uint64_t sums_[4] = {1, 2, 3, 4};
};

// Another process may write the slot at the same time, so each word is read atomically.
std::uint64_t load(const std::byte* at, std::memory_order order) {
  auto* word = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(at));
  return std::atomic_ref<std::uint64_t>(*word).load(order);
}

// Copies the payload of a slot and returns the digest of the copy.
std::uint64_t copy_out(std::span<std::byte> to, const std::byte* from, std::uint64_t version) {
  Digest digest(version);
  for (std::size_t done = 0; done < to.size(); done += sizeof(std::uint64_t)) {
    std::uint64_t word = load(from + done, std::memory_order_relaxed);
    const std::size_t size = std::min(sizeof word, to.size() - done);
    std::memcpy(to.data() + done, &word, size);
    digest.add(done / sizeof word, word);
  }
  return digest.value();
}

}  // namespace

void VersionedWriter::stamp(std::span<std::byte> framed, std::size_t payload_bytes,
                            std::uint64_t version) {
  std::memcpy(framed.data(), &version, sizeof version);
  std::byte* const footer = framed.data() + framed.size() - kVersionBytes;
  std::byte* const end = framed.data() + kVersionBytes + payload_bytes;
  std::fill(end, footer, std::byte{0});
  Digest digest(version);
  std::size_t position = 0;
  for (const std::byte* at = framed.data() + kVersionBytes; at != footer; at += kVersionBytes) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    digest.add(position++, word);
  }
  const std::uint64_t value = digest.value();
  std::memcpy(footer, &value, sizeof value);
}

Status VersionedWriter::try_write(LocalSlice framed, std::uint64_t version,
                                  Completion* completion) {
  return edge_.link->data().put(framed, edge_.slots[version % depth_], completion);
}

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

std::optional<std::uint64_t> VersionedReader::copy(std::span<std::byte> payload,
                                                   const std::byte* slot) {
  const std::uint64_t version = load(slot, std::memory_order_acquire);
  const std::uint64_t digest = copy_out(payload, slot + kVersionBytes, version);
  const std::size_t footer = versioned_slot_bytes(payload.size()) - kVersionBytes;
  if (load(slot + footer, std::memory_order_acquire) != digest) return std::nullopt;
  return version;
}

VersionedReader::Outcome VersionedReader::read(std::span<std::byte> payload,
                                               std::optional<std::uint64_t> step) {
  const std::span<std::byte* const> slots(edge_.slots);
  const std::byte* slot = newest(step ? slots.subspan(*step % slots.size(), 1) : slots);
  if (slot == nullptr) return Outcome::kStale;
  const auto version = copy(payload, slot);
  if (!version) return Outcome::kTorn;
  version_ = *version;
  return Outcome::kFresh;
}

}  // namespace dunlin::transport
