// The beginnings of messages with sparse tensors (bindings/c10d/sparse_header.h). What is accepted
// is what the encoder makes of it, and the sizes of what follows are exact.
#include "bindings/c10d/sparse_header.h"

#include <algorithm>

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using torch_backend::SparseHeader;

void check(std::span<const std::byte> message) {
  const auto header = SparseHeader::decode(message);
  if (!header) return;
  FUZZ_CHECK(header->encoded_bytes() <= message.size());
  FUZZ_CHECK(equal(header->encode(), message.first(header->encoded_bytes())));
  FUZZ_CHECK(header->elements >= 0);
  FUZZ_CHECK(static_cast<std::uint64_t>(header->sparse_dimensions) <= header->sizes.size());
  for (const std::size_t value_size : {1, 16}) {
    const auto contents = header->contents(value_size);
    if (!contents) continue;
    const auto elements = static_cast<long double>(header->elements);
    long double values = elements * static_cast<long double>(value_size);
    for (auto i = static_cast<std::size_t>(header->sparse_dimensions); i < header->sizes.size();
         ++i)
      values *= static_cast<long double>(header->sizes[i]);
    FUZZ_CHECK(static_cast<long double>(contents->value_bytes) == values);
    FUZZ_CHECK(static_cast<long double>(contents->index_bytes) ==
               8 * elements * static_cast<long double>(header->sparse_dimensions));
    FUZZ_CHECK(contents->index_bytes + contents->value_bytes <= INT64_MAX);
  }
}

}  // namespace

std::vector<Seed> seeds() {
  return {{"hybrid", SparseHeader{6, 2, {6, 3, 2}, 5}.encode()},
          {"empty", SparseHeader{7, 1, {0}, 0}.encode()}};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const dunlin::fuzz::Exact exact(std::as_bytes(std::span(data, size)));
  dunlin::fuzz::check(exact.bytes());
  return 0;
}
