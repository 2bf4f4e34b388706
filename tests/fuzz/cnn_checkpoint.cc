// Checkpoints of dunlin-cnn (apps/cnn/checkpoint.h).
#include "apps/cnn/checkpoint.h"

#include "tests/fuzz/checkpoint.h"

namespace dunlin::fuzz {
namespace {

using namespace cnn;

void check(std::span<const std::byte> content) {
  check_checkpoint(content, [](const auto& text) { return decode_checkpoint("f", text); });
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
  return {checkpoint_seed("parameters", checkpoint), checkpoint_seed("all", with_all),
          checkpoint_seed("empty", Checkpoint())};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(std::as_bytes(std::span(data, size)));
  return 0;
}
