// Packed files (apps/svm/gzip.h, xz.h). They unpack to a bounded size, or not at all.
#include "apps/svm/gzip.h"
#include "apps/svm/unpack.h"
#include "apps/svm/xz.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

void check(const Exact& packed, const Result<std::vector<char>>& unpacked) {
  if (unpacked) FUZZ_CHECK(unpacked->size() <= svm::most_unpacked(packed.text().size()));
  FUZZ_CHECK(unpacked.status().code() != Code::kUnavailable);
}

}  // namespace

// None: what gzip and xz make differs between their versions. The corpus was made by `gzip -9`,
// twice into one file by `cat`, and by `xz -0`.
std::vector<Seed> seeds() {
  return {};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const dunlin::fuzz::Exact packed(std::as_bytes(std::span(data, size)));
  using namespace dunlin::svm;
  if (is_xz(packed.text())) dunlin::fuzz::check(packed, unpack_xz(packed.text()));
  if (is_gzip(packed.text())) dunlin::fuzz::check(packed, unpack_gzip(packed.text()));
  return 0;
}
