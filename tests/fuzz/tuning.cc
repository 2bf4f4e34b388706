// Files of tunings (collectives/communicator/tuning.h), and the tuning that rank 0 publishes.
#include "collectives/communicator/tuning.h"

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace collective;

void check_file(const std::string& text) {
  const auto tunings = parse_tunings("f", text);
  if (!tunings) {
    FUZZ_CHECK(tunings.status().code() == Code::kCorrupted);
    return;
  }
  const std::string made = to_text(*tunings);
  const auto again = parse_tunings("f", made);
  FUZZ_CHECK(again.is_ok() && again->size() == tunings->size() && to_text(*again) == made);
  for (const Tuning& tuning : *tunings) {
    FUZZ_CHECK(!tuning.shape.key().empty());
    for (const TunedChoice& choice : tuning.choices)
      FUZZ_CHECK(tuning.find(choice.collective, choice.bytes) != nullptr);
  }
}

void check_one(const std::string& text) {
  const auto tuning = parse_tuning(text);
  if (!tuning) return;
  const std::string made = to_text(*tuning);
  const auto again = parse_tuning(made);
  FUZZ_CHECK(again.is_ok() && to_text(*again) == made);
}

Tuning tuning() {
  Tuning made;
  made.shape = {"a processor", 4, 2, "shm", true};
  made.links = {{"hosts", 2e-6, 1e-10}};
  made.gamma = 5e-11;
  made.choices = {{Collective::kAllReduce, 64, "direct", {{"direct", 1e-6, 2e-6}}},
                  {Collective::kBroadcast, 64, "tree", {{"tree", 1e-6, {}}}}};
  return made;
}

}  // namespace

std::vector<Seed> seeds() {
  return {text_seed("file", '\0' + to_text(std::vector<Tuning>{tuning()})),
          text_seed("empty_file", '\0' + to_text(std::vector<Tuning>{})),
          text_seed("one", '\1' + to_text(tuning()))};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  const bool is_one = input.take<std::uint8_t>() % 2 == 1;
  const std::string text(input.text());
  is_one ? check_one(text) : check_file(text);
  return 0;
}
