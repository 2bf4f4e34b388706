// Descriptions of memory that NIXL carries from agent to agent (bindings/nixl/memory.h). Memory
// that is accepted ends within the address space, and its description is the input.
#include "bindings/nixl/memory.h"

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {

using nixl::LocalMemory;
using nixl::RemoteMemory;

std::vector<Seed> seeds() {
  // The address is that of a peer: nothing is there in this process.
  auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{0x7f0000001000});
  return {text_seed("memory", LocalMemory{transport::MemoryId(3), base, 4096}.describe()),
          text_seed("empty", LocalMemory{}.describe())};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  const Exact exact(std::as_bytes(std::span(data, size)));
  const auto memory = RemoteMemory::parse(exact.text(), "agent");
  if (!memory) return 0;
  FUZZ_CHECK(memory->agent == "agent");
  FUZZ_CHECK(LocalMemory({memory->id, memory->base, memory->size}).describe() == exact.text());
  FUZZ_CHECK(reinterpret_cast<std::uintptr_t>(memory->base) + memory->size >= memory->size);
  return 0;
}
