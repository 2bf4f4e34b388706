// Checkpoints of dunlin-cnn (apps/cnn/checkpoint.h). The input is the content before the checksum,
// which the harness adds, or else nothing behind it could be reached.
#include "apps/cnn/checkpoint.h"

#include "apps/digest.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace cnn;

void check(std::span<const std::byte> content) {
  Bytes file(content.begin(), content.end());
  const Digest digest = digest_of({content});
  file.insert(file.end(), digest.begin(), digest.end());
  const auto as_text = [](const Exact& bytes) { return bytes.text(); };
  const Exact exact(file);
  const auto checkpoint = decode_checkpoint("f", as_text(exact));
  if (!checkpoint) return;
  FUZZ_CHECK(equal(encode_checkpoint(*checkpoint), file));
  // One byte less is one that is cut short, and a changed one is noticed.
  FUZZ_CHECK(!decode_checkpoint("f", as_text(exact).substr(0, file.size() - 1)).is_ok());
  file[file.size() / 2] ^= std::byte{1};
  FUZZ_CHECK(!decode_checkpoint("f", as_text(Exact(file))).is_ok());
}

Seed seed(std::string name, const Checkpoint& checkpoint) {
  Bytes bytes = encode_checkpoint(checkpoint);
  bytes.resize(bytes.size() - sizeof(Digest));
  return {std::move(name), bytes};
}

}  // namespace

std::vector<Seed> seeds() {
  Checkpoint checkpoint;
  checkpoint.rank = 1;
  checkpoint.ranks = 2;
  checkpoint.iteration = 30;
  checkpoint.settings = "lr=0.1";
  checkpoint.loss = 2.3;
  checkpoint.parameters = {1, -2, 3.5F};
  Checkpoint with_all = checkpoint;
  with_all.velocity = {0, 0, 1};
  with_all.statistics = {4};
  return {seed("parameters", checkpoint), seed("all", with_all), seed("empty", {})};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(std::as_bytes(std::span(data, size)));
  return 0;
}
