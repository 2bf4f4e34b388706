// The ends of a mapped edge: what the reader sees at any moment of a deposit, step by step in
// orders that a seed chooses, and with two threads at once. A failure prints its seed.
#include "collectives/rma/mapped_edge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/seeds.h"

namespace dunlin::collective {
namespace {

constexpr std::size_t kCount = 1003;
constexpr std::size_t kBytes = EdgeMemory::buffer_bytes(kCount * sizeof(double));

class Edge {
 public:
  Edge() {
    for (std::size_t i = 0; i < lines_.size(); ++i) lines_[i] = Line{};
    std::array<std::byte*, EdgeMemory::kBuffers> buffers{};
    for (std::size_t i = 0; i < buffers.size(); ++i)
      buffers[i] = reinterpret_cast<std::byte*>(lines_.data()) + i * kBytes;
    memory_ = EdgeMemory::of(buffers, kCount * sizeof(double));
  }
  const EdgeMemory& memory() const { return memory_; }

 private:
  struct alignas(transport::kCacheLine) Line {
    std::byte bytes[transport::kCacheLine];
  };
  static_assert(kBytes % sizeof(Line) == 0);
  std::vector<Line> lines_ = std::vector<Line>(EdgeMemory::kBuffers * kBytes / sizeof(Line));
  EdgeMemory memory_;
};

// What the edge holds: the deposits since the last take, one by one.
struct Expected {
  bool is_put = false;
  double value = 0;
  std::uint64_t deposits = 0;

  void add(DepositKind kind, double deposited) {
    is_put = is_put || kind == DepositKind::kPut;
    value = kind == DepositKind::kPut ? deposited : value + deposited;
    ++deposits;
  }
};

void expect_equal(const DepositHeader* header, std::span<const double> tensor,
                  const Expected& expected, std::uint64_t seed) {
  ASSERT_EQ(header != nullptr, expected.deposits > 0) << "seed " << seed;
  if (header == nullptr) return;
  EXPECT_EQ(header->deposits, expected.deposits) << "seed " << seed;
  EXPECT_EQ(header->kind, expected.is_put ? DepositKind::kPut : DepositKind::kAccumulate);
  EXPECT_EQ(header->p, expected.value) << "seed " << seed;
  for (const double element : tensor) ASSERT_EQ(element, expected.value) << "seed " << seed;
}

class MappedEdgeTest : public ::testing::TestWithParam<std::uint64_t> {};

// The steps of both ends in random order. Values are whole numbers, so that sums are exact.
TEST_P(MappedEdgeTest, TheReaderSeesDepositsOneByOne) {
  const std::uint64_t seed = GetParam();
  std::mt19937_64 random(seed);
  Edge edge;
  TensorPasses<double> passes;
  MappedWriter<double> writer(edge.memory(), passes);
  MappedReader<double> reader(edge.memory());
  std::vector<double> self(kCount);
  Expected expected;
  Expected held;  // by the reader, unless it has no deposits
  const DepositHeader* header = nullptr;
  bool is_writing = false;
  DepositKind kind{};
  double value = 0;
  int repetitions = 0;
  for (int step = 0; step < 2000; ++step) {
    switch (random() % 4) {
      case 0:
        if (!is_writing) {
          kind = random() % 3 == 0 ? DepositKind::kPut : DepositKind::kAccumulate;
          value = static_cast<double>(random() % 1000);
          std::fill(self.begin(), self.end(), value);
        }
        // If it is writing, it has died, and the next writer begins anew.
        writer.write(kind, 2, self, value);
        is_writing = true;
        break;
      case 1:
        if (!is_writing) break;
        if (writer.publish()) {
          expected.add(kind, 2 * value);
          is_writing = false;
        } else {
          ++repetitions;
          ASSERT_EQ(expected.deposits, 0u) << "nothing was taken, seed " << seed;
          writer.write(kind, 2, self, value);
          ASSERT_TRUE(writer.publish()) << "seed " << seed;
          expected.add(kind, 2 * value);
          is_writing = false;
        }
        break;
      case 2:
        if (const auto* now = reader.hold(); now != nullptr) header = now;
        if (expected.deposits > 0) held = expected;
        break;
      default:
        if (const auto* now = reader.take(); now != nullptr) header = now;
        if (expected.deposits > 0) held = expected;
        expected = {};
    }
    // What the reader holds does not change, whatever the writer does.
    if (held.deposits > 0) expect_equal(header, reader.tensor(), held, seed);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(repetitions, 0) << "no deposit was crossed by a take, seed " << seed;
}

// Two threads. Every buffer that the reader sees has one value in all places, and the sum of what
// it takes is the sum of what was deposited.
TEST_P(MappedEdgeTest, ThreadsRaceAndNothingTears) {
  const std::uint64_t seed = GetParam();
  Edge edge;
  constexpr int kDeposits = 300;
  std::atomic<bool> is_over{false};
  double deposited = 0;
  std::thread thread([&] {
    std::mt19937_64 random(seed);
    TensorPasses<double> passes;
    MappedWriter<double> writer(edge.memory(), passes);
    std::vector<double> self(kCount);
    for (int i = 0; i < kDeposits; ++i) {
      const double value = static_cast<double>(random() % 1000);
      std::fill(self.begin(), self.end(), value);
      do {
        writer.write(DepositKind::kAccumulate, 0.5, self, value);
      } while (!writer.publish());
      deposited += 0.5 * value;
    }
    is_over.store(true);
  });
  std::mt19937_64 random(~seed);
  MappedReader<double> reader(edge.memory());
  double taken = 0;
  std::uint64_t deposits = 0;
  std::uint64_t seen = 0;  // since the last take
  bool is_torn = false;
  for (bool is_last = false; !is_last;) {
    is_last = is_over.load();
    const bool takes = is_last || random() % 2 == 0;
    const DepositHeader* const header = takes ? reader.take() : reader.hold();
    if (header == nullptr) continue;
    is_torn = is_torn || header->deposits < seen;
    for (const double element : reader.tensor()) is_torn = is_torn || element != header->p;
    seen = takes ? 0 : header->deposits;
    taken += takes ? header->p : 0;
    deposits += takes ? header->deposits : 0;
  }
  thread.join();
  EXPECT_FALSE(is_torn) << "seed " << seed;
  EXPECT_EQ(taken, deposited) << "seed " << seed;
  EXPECT_EQ(deposits, static_cast<std::uint64_t>(kDeposits)) << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(Seeds, MappedEdgeTest,
                         ::testing::Range<std::uint64_t>(1, 1 + testing::seeds(100)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::collective
