// What the members of a PyTorch process group put into its store (bindings/c10d/claim.h). What is
// accepted is what the encoder makes of it.
#include "bindings/c10d/claim.h"

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {

using torch_backend::Claim;
using torch_backend::Standing;

std::vector<Seed> seeds() {
  const Claim running{Standing::kRunning, "job/10.0.0.1:4711", 3, "a host", "0123456789abcdef"};
  const Claim alone{Standing::kNone, "", 0, "a host", "0123456789abcdef"};
  return {text_seed("running", running.encode()), text_seed("alone", alone.encode())};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  const Exact exact(std::as_bytes(std::span(data, size)));
  const auto claim = Claim::decode(exact.text());
  if (!claim) return 0;
  FUZZ_CHECK(claim->encode() == exact.text());
  FUZZ_CHECK(claim->standing <= Standing::kRunning && claim->rank >= 0);
  return 0;
}
