// Checkpoints of dunlin-svm (apps/svm/checkpoint.h).
#include "apps/svm/checkpoint.h"

#include "tests/fuzz/checkpoint.h"

namespace dunlin::fuzz {
namespace {

using namespace svm;

void check(std::span<const std::byte> content) {
  check_checkpoint(content, [](const auto& text) { return decode_checkpoint("f", text); });
}

}  // namespace

std::vector<Seed> seeds() {
  Checkpoint checkpoint;
  checkpoint.rank = 1;
  checkpoint.ranks = 2;
  checkpoint.iteration = 30;
  checkpoint.shard_rows = 10;
  checkpoint.model = {1, -2, 3.5F};
  Checkpoint with_average = checkpoint;
  with_average.averaged = 2;
  with_average.average = {0, 1, 2};
  return {checkpoint_seed("model", checkpoint), checkpoint_seed("average", with_average),
          checkpoint_seed("empty", Checkpoint())};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(std::as_bytes(std::span(data, size)));
  return 0;
}
