// Members: the members of a communicator, how this one reaches the others, and the memory they
// share.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/communicator/plan.h"
#include "collectives/tuner/tuning.h"

namespace dunlin::collective {

class Members {
 public:
  // Publishes what the members need to know; connect() reads what they published.
  static Result<std::unique_ptr<Members>> prepare(transport::Fabric& fabric,
                                                  CommunicatorOptions options);
  // All look-ups together take no longer than that. After an expiry it can be called again.
  Status connect(TimePoint until);
  ~Members();
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  const CommunicatorOptions& options() const { return options_; }
  transport::Fabric& fabric() { return fabric_; }
  transport::NotifyBoard& board() { return fabric_.board(); }
  Compute& compute() { return compute_; }
  Windows& windows() { return windows_; }
  Window& scratch() { return *scratch_; }
  // Each turn's share of the scratch.
  std::size_t scratch_per_turn() const { return options_.scratch_bytes / kTurns; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(options_.members.size()); }
  bool is_all_mapped() const { return is_all_mapped_; }
  const Grouping& grouping() const { return grouping_; }  // for algorithms by groups
  const Grouping& hosts() const { return hosts_; }
  // What algorithms get to know, for elements of so many bytes.
  Shape shape_for(std::size_t element) const;
  bool suits(const Algorithm& algorithm) const;
  TuningShape tuning_shape() const;
  const Tuning& tuning() const { return tuning_; }
  void use(Tuning tuning) { tuning_ = std::move(tuning); }

  // The ends of the ways to a member in a turn; connects on first use.
  Result<ExecutorPeer*> peer(std::uint64_t turn, int member);

 private:
  Members(transport::Fabric& fabric, CommunicatorOptions options);
  Status allocate();
  Result<Bytes> look_up(std::string_view what, int member, TimePoint until);
  Status meet(TimePoint until);
  // Whether all members agree that everybody has mapped everybody.
  Status agree_on_mapping(TimePoint until);
  // The first member's file is everybody's.
  Status agree_on_tuning(TimePoint until);
  std::string key(std::string_view what, int member) const;
  transport::NotifyId cell(transport::NotifyId first, std::uint64_t turn, Stream stream,
                           int writer) const;

  transport::Fabric& fabric_;
  CommunicatorOptions options_;
  KernelCompute compute_;
  Windows windows_;
  Window* scratch_ = nullptr;
  int rank_ = -1;
  bool is_all_mapped_ = false;
  bool has_told_mapping_ = false;
  Grouping grouping_;
  Grouping hosts_;
  Tuning tuning_;
  transport::NotifyId cells_{};  // ours: kTurns * kStreams * size()
  bool has_cells_ = false;
  std::vector<transport::NotifyId> first_cells_;         // by member
  std::array<std::vector<ExecutorPeer>, kTurns> peers_;  // by member
};

}  // namespace dunlin::collective
