#include "transports/shm/descriptor.h"

#include <cstring>
#include <limits>

#include "transports/shm/constants.h"
#include "transports/shm/handover.h"

namespace dunlin::transport::shm {
namespace {

// Pieces of a range of GPU memory. PyTorch's have 2 or 20 MiB: beyond any GPU's memory.
constexpr std::uint32_t kMostPieces = 1 << 20;
constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

void write(ByteWriter& writer, const FileMemory& host) {
  writer.number(host.fd).number(host.inode).number(host.offset);
}

void write(ByteWriter& writer, const AllocatedGpuMemory& gpu) {
  writer.blob(std::as_bytes(std::span(&gpu.allocation, 1))).number(gpu.offset);
  writer.number(static_cast<std::uint8_t>(gpu.is_owned));
}

void write(ByteWriter& writer, const GpuPieces& range) {
  writer.text(range.pci_bus_id).number(range.offset);
  writer.number(static_cast<std::uint32_t>(range.pieces.size()));
  for (const GpuPieces::Piece& piece : range.pieces) writer.number(piece.fd).number(piece.size);
}

void write(ByteWriter& writer, const UnsharedMemory& unshared) {
  writer.text(unshared.why);
}

void write(ByteWriter& writer, const PrivateMemory& memory) {
  writer.number(memory.address);
}

// Each of these functions returns false if the region, of `size` bytes, does not lie within its
// memory. The reader knows of reads past the end.

bool read(ByteReader& reader, std::uint64_t /*size*/, FileMemory& host) {
  host.fd = reader.number<std::int32_t>();
  host.inode = reader.number<std::uint64_t>();
  host.offset = reader.number<std::uint64_t>();
  return true;
}

bool read(ByteReader& reader, std::uint64_t size, AllocatedGpuMemory& gpu) {
  const auto allocation = reader.blob();
  gpu.offset = reader.number<std::uint64_t>();
  gpu.is_owned = reader.number<std::uint8_t>() != 0;
  if (allocation.size() != sizeof gpu.allocation) return false;
  std::memcpy(&gpu.allocation, allocation.data(), sizeof gpu.allocation);
  return gpu.offset <= gpu.allocation.size && size <= gpu.allocation.size - gpu.offset;
}

bool read(ByteReader& reader, std::uint64_t size, GpuPieces& range) {
  range.pci_bus_id = reader.text();
  range.offset = reader.number<std::uint64_t>();
  const auto count = reader.number<std::uint32_t>();
  if (count == 0 || count > kMostPieces) return false;
  std::uint64_t whole = 0;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    GpuPieces::Piece& piece = range.pieces.emplace_back();
    piece.fd = reader.number<std::int32_t>();
    piece.size = reader.number<std::uint64_t>();
    if (piece.size > kMost - whole) return false;
    whole += piece.size;
  }
  return range.offset <= whole && size <= whole - range.offset;
}

bool read(ByteReader& reader, std::uint64_t /*size*/, UnsharedMemory& unshared) {
  unshared.why = reader.text();
  return true;
}

bool read(ByteReader& reader, std::uint64_t size, PrivateMemory& memory) {
  memory.address = reader.number<std::uint64_t>();
  return size <= kMost - memory.address;
}

// Makes the memory of the kind that has this number.
template <std::size_t kKind = 0>
bool read(ByteReader& reader, std::uint64_t size, std::size_t kind,
          decltype(ShmDescriptor::memory)& memory) {
  if constexpr (kKind == std::variant_size_v<decltype(ShmDescriptor::memory)>) {
    return false;
  } else {
    return kind == kKind ? read(reader, size, memory.emplace<kKind>())
                         : read<kKind + 1>(reader, size, kind, memory);
  }
}

}  // namespace

Bytes ShmDescriptor::encode() const {
  ByteWriter writer;
  writer.number(place).number(generation).number(static_cast<std::uint8_t>(memory.index()));
  std::visit([&](const auto& each) { write(writer, each); }, memory);
  return writer.take();
}

Result<ShmDescriptor> ShmDescriptor::decode(std::span<const std::byte> bytes, std::uint64_t size) {
  ByteReader reader(bytes);
  ShmDescriptor descriptor;
  descriptor.place = reader.number<std::uint32_t>();
  descriptor.generation = reader.number<std::uint64_t>();
  const auto kind = reader.number<std::uint8_t>();
  const bool is_within = read(reader, size, kind, descriptor.memory);
  // Places without a region have the generation 0. The numbers from kMemoryOffer on stand for other
  // things that the owner hands over.
  const bool is_region = descriptor.place < kMaxRegions && descriptor.generation != 0 &&
                         descriptor.generation < kMemoryOffer;
  if (!reader.at_end() || !is_within || !is_region)
    return Status(Code::kCorrupted, "malformed shm region descriptor");
  return descriptor;
}

}  // namespace dunlin::transport::shm
