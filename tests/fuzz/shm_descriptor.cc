// Descriptors of regions of the shm transport (transports/shm/descriptor.h). A region that is
// accepted has a place, and lies within its memory, as far as the descriptor tells of it.
#include "transports/shm/descriptor.h"

#include "tests/fuzz/harness.h"
#include "transports/shm/constants.h"

namespace dunlin::fuzz {
namespace {

using namespace transport::shm;

// Whether `size` bytes at the offset lie within the memory.
void check_within(std::uint64_t offset, std::uint64_t size, std::uint64_t memory) {
  std::uint64_t end = 0;
  FUZZ_CHECK(!__builtin_add_overflow(offset, size, &end) && end <= memory);
}

void check_memory(const AllocatedGpuMemory& memory, std::uint64_t size) {
  check_within(memory.offset, size, memory.allocation.size);
}

void check_memory(const GpuPieces& memory, std::uint64_t size) {
  FUZZ_CHECK(!memory.pieces.empty());
  std::uint64_t whole = 0;
  for (const auto& piece : memory.pieces)
    FUZZ_CHECK(!__builtin_add_overflow(whole, piece.size, &whole));
  check_within(memory.offset, size, whole);
}

void check_memory(const PrivateMemory& memory, std::uint64_t size) {
  check_within(memory.address, size, UINT64_MAX);
}

// What these say is checked when the file is mapped, and not used.
void check_memory(const FileMemory& /*memory*/, std::uint64_t /*size*/) {}
void check_memory(const UnsharedMemory& /*memory*/, std::uint64_t /*size*/) {}

void check(std::span<const std::byte> bytes, std::uint64_t size) {
  const auto descriptor = ShmDescriptor::decode(bytes, size);
  if (!descriptor) return;
  FUZZ_CHECK(descriptor->place < kMaxRegions && descriptor->generation != 0);
  std::visit([&](const auto& memory) { check_memory(memory, size); }, descriptor->memory);
  // The one byte that may differ is whether Dunlin has allocated memory on a GPU.
  const Bytes encoded = descriptor->encode();
  FUZZ_CHECK(encoded.size() == bytes.size());
  const auto again = ShmDescriptor::decode(encoded, size);
  FUZZ_CHECK(again.is_ok() && equal(again->encode(), encoded));
}

constexpr std::uint64_t kSize = 4096;

template <typename Memory>
Seed seed(std::string name, Memory memory) {
  const ShmDescriptor descriptor{3, 17, std::move(memory)};
  const Bytes encoded = descriptor.encode();
  Bytes bytes = ByteWriter().number(kSize).take();
  bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  return {std::move(name), bytes};
}

}  // namespace

std::vector<Seed> seeds() {
  SharedGpuMemory allocation;
  allocation.pci_bus_id = {'0', '0', ':', '0', '4'};
  allocation.process = 5;
  allocation.buffer = 6;
  allocation.size = 2 * kSize;
  return {seed("file", FileMemory{7, 123456, kSize}),
          seed("gpu", AllocatedGpuMemory{allocation, kSize, true}),
          seed("gpu_pieces", GpuPieces{"00:04", 64, {{8, kSize}, {9, kSize}}}),
          seed("unshared", UnsharedMemory{"the driver shares nothing"}),
          seed("private", PrivateMemory{0x7f0000001000})};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  const auto region_size = input.take<std::uint64_t>();
  const Exact exact(input.rest());
  check(exact.bytes(), region_size);
  return 0;
}
