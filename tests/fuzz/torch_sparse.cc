// The beginnings of messages with sparse tensors (bindings/c10d/sparse_header.h). What is accepted
// is what the encoder makes of it, and the sizes of what follows are exact. Indices that are
// accepted lie within the sizes.
#include "bindings/c10d/sparse_header.h"

#include <initializer_list>

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using torch_backend::SparseHeader;

void check_indices(const SparseHeader& header, std::span<const std::byte> contents) {
  const auto sizes = header.contents(1);
  if (!sizes || contents.size() < sizes->index_bytes) return;
  const auto indices = contents.first(sizes->index_bytes);
  const std::size_t count = indices.size() / sizeof(std::int64_t);
  bool is_within = true;
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t index = 0;
    std::memcpy(&index, indices.data() + i * sizeof index, sizeof index);
    const std::size_t dimension = i / static_cast<std::size_t>(header.elements);
    is_within = is_within && index >= 0 && index < header.sizes[dimension];
  }
  FUZZ_CHECK(header.accepts_indices(indices) == is_within);
  // Neither more nor fewer bytes are the indices.
  if (contents.size() > indices.size())
    FUZZ_CHECK(!header.accepts_indices(contents.first(indices.size() + 1)));
  if (!indices.empty()) FUZZ_CHECK(!header.accepts_indices(indices.first(indices.size() - 1)));
}

void check(std::span<const std::byte> message) {
  const auto header = SparseHeader::decode(message);
  if (!header) return;
  FUZZ_CHECK(header->encoded_bytes() <= message.size());
  FUZZ_CHECK(equal(header->encode(), message.first(header->encoded_bytes())));
  FUZZ_CHECK(header->elements >= 0);
  FUZZ_CHECK(static_cast<std::uint64_t>(header->sparse_dimensions) <= header->sizes.size());
  check_indices(*header, message.subspan(header->encoded_bytes()));
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

// The header, and behind it the indices, by dimension.
Seed seed(std::string name, const SparseHeader& header, std::initializer_list<std::int64_t> of) {
  Bytes bytes = header.encode();
  ByteWriter writer;
  for (const std::int64_t index : of) writer.number(index);
  const Bytes indices = writer.take();
  bytes.insert(bytes.end(), indices.begin(), indices.end());
  return {std::move(name), bytes};
}

}  // namespace

std::vector<Seed> seeds() {
  return {{"hybrid", SparseHeader{6, 2, {6, 3, 2}, 5}.encode()},
          {"empty", SparseHeader{7, 1, {0}, 0}.encode()},
          seed("indices", {6, 2, {6, 3}, 2}, {0, 5, 2, 1}),
          seed("index_beyond_the_size", {6, 2, {6, 3}, 2}, {0, 6, 2, 1}),
          seed("negative_index", {6, 1, {6}, 1}, {-1})};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const dunlin::fuzz::Exact exact(std::as_bytes(std::span(data, size)));
  dunlin::fuzz::check(exact.bytes());
  return 0;
}
