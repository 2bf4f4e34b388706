// ScheduleRank: one rank of a ScheduleWorld, with everything that its program runs on.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "collectives/schedule/executor.h"
#include "tools/dunlin-sim/schedule_world.h"

namespace dunlin::simulate {

// Keeps the rank busy for as long as a reduction takes, then does it.
class TimedCompute final : public collective::Compute {
 public:
  explicit TimedCompute(double gamma) : gamma_(gamma) {}
  void prepare(transport::sim::Node& node, bool is_phantom) {
    node_ = &node;
    is_phantom_ = is_phantom;
  }
  bool run(collective::Reduction reduction, std::span<const std::byte* const> inputs,
           std::span<std::byte* const> targets, std::size_t count, std::size_t divisor) override;

 private:
  double gamma_;
  bool is_phantom_ = false;
  transport::sim::Node* node_ = nullptr;
  bool is_busy_ = false;
  TimePoint done_at_{};
};

class ScheduleRank final : public Stepper {
 public:
  ScheduleRank(ScheduleWorld& world, collective::Program program);
  ~ScheduleRank() override;

  // Of its memory.
  std::size_t bytes() const;
  // Its memory and its board; then, when all have theirs, its ways to its peers.
  Status prepare(transport::sim::Network& network);
  Status connect();

  Status start(std::uint64_t step) override;
  Status test() override;
  std::vector<transport::Awaited> awaited() const override;
  bool depends_on(Rank gone) const override;
  Duration begins_after() const override { return begins_after_; }

  const collective::Executor& executor() const { return *executor_; }
  // It goes no further.
  bool has_failed() const { return has_failed_; }
  const collective::Program& program() const { return program_; }

 private:
  // Programs of consecutive steps take turns in their scratch and their cells. Whoever has ended a
  // step knows that everybody has entered it (or is asked first, where the collective doesn't
  // synchronize), and so has ended the step before: two turns suffice.
  static constexpr std::size_t kTurns = 2;
  struct Turn {
    std::vector<collective::ExecutorPeer> peers;
    std::vector<collective::ExecutorPeer*> pointers;
    std::vector<std::array<collective::PeerBuffer, collective::kBufferKinds>> buffers;
  };

  static constexpr std::size_t kElement = sizeof(float);

  std::size_t turns() const;
  // In the rank's memory, in bytes.
  std::size_t offset_of(collective::BufferKind kind, std::size_t turn) const;
  std::size_t size_of(collective::BufferKind kind) const;
  transport::NotifyId cell(std::size_t turn, collective::Stream stream, std::size_t peer) const;
  Result<std::size_t> index_of(int rank) const;  // among our peers
  float* floats(collective::BufferKind kind) const;
  void fill();
  Status verify() const;

  ScheduleWorld& world_;
  Rank self_;
  collective::Program program_;
  TimedCompute compute_;
  std::unique_ptr<collective::Executor> executor_;
  std::vector<std::uint32_t> peer_order_;  // indices of the program's peers, ascending by rank
  std::vector<Turn> turns_;
  std::uint64_t step_ = 0;
  TimePoint started_at_{};
  Duration begins_after_{};
  // Also by depends_on(): who depends on a lost rank is ended, and no longer shows for whom it
  // waited, as its puts to that rank are given up.
  mutable bool has_failed_ = false;
  std::unique_ptr<float[]> memory_;
  std::vector<std::unique_ptr<transport::RemoteRegion>> remotes_;  // as the program's peers
  std::unique_ptr<transport::LocalRegion> region_;
  // Last: goes first, as its lanes complete what the executor still awaits.
  std::unique_ptr<transport::sim::Node> node_;
};

}  // namespace dunlin::simulate
