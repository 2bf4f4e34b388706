// What the processes of one training tell one another of it: the checkpoints that each has found
// (apps/checkpoint_inventory.h), where each stands (standing.h of both trainers), and what each has
// done (totals.h). Reports of checkpoints that are accepted make an inventory whose choice is
// complete.
#include "apps/checkpoint_inventory.h"
#include "apps/cnn/program/standing.h"
#include "apps/svm/program/standing.h"
#include "apps/svm/program/totals.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

enum Mode : std::uint8_t { kCheckpoints, kSvm, kCnn, kTotals, kModes };

void check_inventory(const CheckpointReport& report, bool needs_same_iteration) {
  CheckpointSearch search;
  search.base = "model";
  search.ranks = 2;
  search.members = {Rank(0), Rank(1)};
  search.needs_same_iteration = needs_same_iteration;
  CheckpointInventory inventory(search);
  inventory.add(report);
  inventory.add({});
  (void)inventory.missing();
  FUZZ_CHECK(inventory.incomplete({}).size() <= report.states.size() + report.problems.size());
  const auto found = inventory.latest();
  if (!found) return;
  FUZZ_CHECK(found->ranks() > 0 && found->ranks() <= report.states.size());
  for (const Rank member : search.members)
    for (const std::uint32_t rank : inventory.share_of(member, found->ranks()))
      FUZZ_CHECK(rank < found->ranks() || found->ranks() == search.ranks);
}

void check_checkpoints(std::span<const std::byte> bytes, bool needs_same_iteration) {
  const auto report = CheckpointReport::decode(bytes);
  if (!report) return;
  const Bytes encoded = report->encode();
  // A file may be named twice as one that cannot be used.
  FUZZ_CHECK(encoded.size() <= bytes.size());
  const auto again = CheckpointReport::decode(encoded);
  FUZZ_CHECK(again.is_ok() && equal(again->encode(), encoded));
  for (const SavedState& state : report->states) FUZZ_CHECK(state.name.rank < state.name.ranks);
  check_inventory(*report, needs_same_iteration);
}

void check_svm(std::span<const std::byte> bytes) {
  const auto standing = svm::Standing::decode(bytes);
  if (!standing) return;
  FUZZ_CHECK(equal(standing->encode(), bytes));
  FUZZ_CHECK(standing->stage <= svm::Stage::kTraining);
  FUZZ_CHECK(standing->absence >= Duration::zero() && standing->trained >= Duration::zero());
}

void check_cnn(std::span<const std::byte> bytes) {
  const auto standing = cnn::Standing::decode(bytes);
  if (!standing) return;
  FUZZ_CHECK(standing->encode().size() == bytes.size());
  FUZZ_CHECK(standing->timeout >= Duration::zero() && standing->trained >= Duration::zero());
}

void check_totals(std::span<const std::byte> bytes) {
  auto totals = svm::Totals::decode(bytes);
  if (!totals) return;
  FUZZ_CHECK(equal(totals->encode(), bytes));
  FUZZ_CHECK(totals->inputs.size() <= bytes.size());
  svm::Totals sum = *totals;
  sum += *totals;
  FUZZ_CHECK(sum.inputs.size() == totals->inputs.size());
}

}  // namespace

std::vector<Seed> seeds() {
  CheckpointReport report;
  report.host = "a host";
  for (const std::uint32_t rank : {0U, 1U, 2U}) {
    SavedState state;
    state.name.rank = rank;
    state.name.ranks = 3;
    state.name.iteration = 100;
    state.run = 7;
    state.done = 5000;
    report.states.push_back(state);
  }
  CheckpointName broken = report.states.front().name;
  broken.iteration = 200;
  report.problems[broken] = "it is cut short";
  svm::Standing svm;
  svm.stage = svm::Stage::kTraining;
  svm.exchange = 17;
  svm.eta0 = 0.5;
  svm.absence = std::chrono::seconds(3);
  svm::Totals totals;
  totals.exchanges = 7;
  totals.wait_s = 0.25;
  totals.inputs = {{2, 5}, {3, 2}};
  cnn::Standing cnn;
  cnn.has_model = true;
  cnn.iteration = 17;
  cnn.timeout = std::chrono::seconds(3);
  return {headed_seed("checkpoints", {kCheckpoints, 1}, report.encode()),
          headed_seed("svm", {kSvm, 1}, svm.encode()), headed_seed("cnn", {kCnn, 1}, cnn.encode()),
          headed_seed("totals", {kTotals, 1}, totals.encode())};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  const auto mode = input.take<std::uint8_t>() % kModes;
  const bool needs_same_iteration = input.take<std::uint8_t>() % 2 != 0;
  const Exact exact(input.rest());
  if (mode == kCheckpoints) check_checkpoints(exact.bytes(), needs_same_iteration);
  if (mode == kSvm) check_svm(exact.bytes());
  if (mode == kCnn) check_cnn(exact.bytes());
  if (mode == kTotals) check_totals(exact.bytes());
  return 0;
}
