// ScheduleRank: one rank of a ScheduleWorld, with everything that its program needs.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "collectives/schedule/executor.h"
#include "tools/dunlin-sim/network/schedule_world.h"

namespace dunlin::simulate {

// Keeps the rank busy for the time of a reduction, then makes it.
class TimedCompute final : public collective::Compute {
 public:
  explicit TimedCompute(double gamma) : gamma_(gamma) {}
  void prepare(transport::sim::Node& node, bool is_phantom) {
    node_ = &node;
    is_phantom_ = is_phantom;
  }
  Status run(collective::Reduction reduction, std::span<const std::byte* const> inputs,
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

  // The size of its memory.
  std::size_t bytes() const;
  // Creates its memory and its board. When all ranks have theirs, connect() connects it to its
  // peers.
  Status prepare(transport::sim::Network& network);
  Status connect();

  Status start(std::uint64_t step) override;
  Status test() override;
  std::vector<transport::Awaited> awaited() const override;
  bool depends_on(Rank gone) const override;
  Duration begins_after() const override { return begins_after_; }

  const collective::Executor& executor() const { return *executor_; }
  // Whether it has ended because of a death.
  bool has_failed() const { return has_failed_; }
  const collective::Program& program() const { return program_; }

 private:
  // Programs of consecutive steps alternate between two sets of scratch and cells. Two suffice: a
  // rank that has ended a step knows that all ranks have entered it (a barrier makes sure of that
  // when the collective does not synchronize), and so have ended the step before.
  static constexpr std::size_t kTurns = 2;
  struct Turn {
    std::vector<collective::ExecutorPeer> peers;
    std::vector<collective::ExecutorPeer*> pointers;
    std::vector<std::array<collective::PeerBuffer, collective::kBufferKinds>> buffers;
  };

  static constexpr std::size_t kElement = sizeof(float);

  std::size_t turns() const;
  // Offsets in the memory of the rank, in bytes.
  std::size_t offset_of(collective::BufferKind kind, std::size_t turn) const;
  std::size_t size_of(collective::BufferKind kind) const;
  transport::NotifyId cell(std::size_t turn, collective::Stream stream, std::size_t peer) const;
  Result<std::size_t> index_of(int rank) const;  // among the peers of this rank
  float* floats(collective::BufferKind kind) const;
  void fill();
  Status verify() const;

  ScheduleWorld& world_;
  Rank self_;
  collective::Program program_;
  TimedCompute compute_;
  std::unique_ptr<collective::Executor> executor_;
  std::vector<std::uint32_t> peer_order_;  // indices of the peers of the program, ascending by rank
  std::vector<Turn> turns_;
  std::uint64_t step_ = 0;
  TimePoint started_at_{};
  Duration begins_after_{};
  // depends_on() sets it as well: a rank that depends on a dead one is ended. Its executor no
  // longer says for which rank it waited, as its puts to that rank are given up.
  mutable bool has_failed_ = false;
  std::unique_ptr<float[]> memory_;
  std::vector<std::unique_ptr<transport::RemoteRegion>>
      remotes_;  // in the order of the peers of the program
  std::unique_ptr<transport::LocalRegion> region_;
  // The last member is destroyed first: its lanes complete operations that the executor still
  // awaits.
  std::unique_ptr<transport::sim::Node> node_;
};

}  // namespace dunlin::simulate
