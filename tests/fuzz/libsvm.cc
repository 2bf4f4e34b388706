// LIBSVM files (apps/svm/libsvm_reader.h). They are read alike however the threads split them, what
// is read is well-formed, and shards are dealt from it row by row.
#include <cmath>

#include "apps/svm/libsvm_reader.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace svm;

void check_form(const Dataset& data) {
  FUZZ_CHECK(data.row_begin.size() == data.rows() + 1 && data.row_begin.front() == 0);
  FUZZ_CHECK(data.row_begin.back() == data.indices.size());
  FUZZ_CHECK(data.values.size() == data.indices.size());
  for (std::size_t i = 0; i < data.rows(); ++i) {
    FUZZ_CHECK(data.row_begin[i] <= data.row_begin[i + 1]);
    const Row row = data.row(i);
    FUZZ_CHECK(row.label == 1 || row.label == -1);
    for (std::size_t k = 0; k < row.indices.size(); ++k) {
      FUZZ_CHECK(row.indices[k] < data.features && std::isfinite(row.values[k]));
      FUZZ_CHECK(k == 0 || row.indices[k - 1] < row.indices[k]);
    }
  }
}

bool are_same(const Dataset& a, const Dataset& b) {
  return a.row_begin == b.row_begin && a.indices == b.indices && a.values == b.values &&
         a.labels == b.labels && a.features == b.features && a.total_rows == b.total_rows &&
         a.label_threshold == b.label_threshold && a.dropped_values == b.dropped_values;
}

void check(Input input) {
  LibsvmOptions serial;
  serial.threads = 1;
  const auto flags = input.take<std::uint8_t>();
  const auto split_bytes = 1 + input.take<std::uint8_t>();
  if ((flags & 1) != 0) serial.features = 1 + input.take<std::uint8_t>();
  serial.drop_beyond = (flags & 2) != 0;
  if ((flags & 4) != 0) serial.label_threshold = 0.5F;
  const Exact text(input.rest());
  const auto whole = parse_libsvm("f", text.text(), serial);

  LibsvmOptions split = serial;
  split.threads = 2;
  split.chunk_bytes = static_cast<std::size_t>(split_bytes);
  const auto again = parse_libsvm("f", text.text(), split);
  FUZZ_CHECK(whole.status().to_string() == again.status().to_string());
  if (!whole) return;
  FUZZ_CHECK(are_same(*whole, *again));
  check_form(*whole);

  std::size_t rows = 0;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    LibsvmOptions shard = serial;
    shard.shard = {rank, 3};
    const auto part = parse_libsvm("f", text.text(), shard);
    FUZZ_CHECK(part.is_ok() && part->features == whole->features);
    check_form(*part);
    rows += part->rows();
  }
  FUZZ_CHECK(rows == whole->rows() && rows == whole->total_rows);
}

Seed seed(std::string name, std::string_view head, std::string_view text) {
  return text_seed(std::move(name), std::string(head) + std::string(text));
}

}  // namespace

std::vector<Seed> seeds() {
  constexpr std::string_view kPlain("\0\x20", 2);
  return {seed("two_classes", kPlain, "+1 1:0.5 7:-2e-3 12:1\n-1 2:1 3:4.25\n+1 # none\n"),
          seed("zero_and_one", kPlain, "0 1:1\r\n1 1:2\r\n"),
          seed("comments", kPlain, "# a data set\n\n1 3:1 # a row\n2 4:1"),
          seed("features", "\1\x10\5", "1 1:1 9:2\n-1 6:1\n"),
          seed("dropped", "\7\x10\5", "3 1:1 9:2\n-4 6:1\n")};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(dunlin::fuzz::Input(data, size));
  return 0;
}
