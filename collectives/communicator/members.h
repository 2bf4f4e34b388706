// Members: the ranks of a communicator, the connections from this member to the others, and the
// memory that they share. Owner thread only.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/communicator/plan.h"
#include "collectives/communicator/tuning.h"
#include "collectives/kernels/gpu/gpu_kernels.h"
#include "collectives/schedule/choose.h"

namespace dunlin::collective {

class Members {
 public:
  // Contributes what the other members need to know; connect() gathers it.
  static Result<std::unique_ptr<Members>> prepare(transport::Fabric& fabric,
                                                  CommunicatorOptions options);
  // Returns an expiry at `until`; a later call continues.
  Status connect(TimePoint until);
  ~Members();
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  const CommunicatorOptions& options() const { return options_; }
  transport::Fabric& fabric() { return fabric_; }
  transport::NotifyBoard& board() { return fabric_.board(); }
  // What the executor of a turn reduces with.
  Compute& compute(std::uint64_t turn) { return *computes_[turn]; }
  bool is_on_gpu() const { return gpu_ != nullptr; }
  Windows& windows() { return windows_; }
  Window& scratch() { return *scratch_; }
  // The share of the scratch memory that each turn (plan.h) uses.
  std::size_t scratch_per_turn() const { return options_.scratch_bytes / kTurns; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(options_.members.size()); }
  bool is_all_mapped() const { return is_all_mapped_; }
  const Grouping& grouping() const { return grouping_; }  // for algorithms that need groups
  const Grouping& hosts() const { return hosts_; }
  // True if the members have mapped one another's GPU memory. It is that of one GPU then.
  bool is_on_one_gpu() const { return is_on_gpu() && is_all_mapped_; }
  Connections connections() const;
  // What algorithms may use. `element`: bytes per element.
  Shape shape_for(std::size_t element) const;
  bool suits(const Algorithm& algorithm) const;
  // Its shape is the one that the first member has found, on all members.
  const Tuning& tuning() const { return tuning_; }
  // The shape stays.
  void use(Tuning tuning) {
    tuning.shape = std::move(tuning_.shape);
    tuning_ = std::move(tuning);
  }

  // Gathers `own` of all members in `all`, by member, through the bootstrap. Collective; each
  // `what` can be used once. Blocks for at most config.deadline.
  Status exchange(std::string_view what, std::span<const std::byte> own, std::span<std::byte> all);

  // The lanes and notification cells to a member in a turn. Connects to the member on first use.
  Result<ExecutorPeer*> peer(std::uint64_t turn, int member);
  // The cell on this rank's board that a member writes.
  transport::NotifyId own_cell(std::uint64_t turn, Stream stream, int writer) const {
    return cell(cells_, turn, stream, writer);
  }
  // The first member from `from` on that may have written to its cells; size() if there is none.
  // Members in between have not. To read their cells would allocate memory for them.
  int next_writer(int from) const;
  // The position of a rank among the members.
  int member(Rank rank) const;

 private:
  Members(transport::Fabric& fabric, CommunicatorOptions options);
  Status allocate();
  // Checks that the ranks exist and differ, and finds this one among them.
  Status check_members();
  Status prepare_computes();
  // Returns a hash of the options that must be the same on all members.
  std::uint32_t options_hash() const;
  // What this member tells the others of itself, in 16 bytes.
  Bytes offer() const;
  Result<Bytes> gather(std::string_view what, std::span<const std::byte> own, TimePoint until);
  Status meet(TimePoint until);
  // Finds out whether every member has mapped every other member's memory.
  Status agree_on_mapping(TimePoint until);
  TuningShape find_shape() const;
  // Takes the tuning that the first member found in its file.
  Status agree_on_tuning(TimePoint until);
  std::string key(std::string_view what) const;
  static transport::NotifyId cell(transport::NotifyId first, std::uint64_t turn, Stream stream,
                                  int writer);

  transport::Fabric& fabric_;
  CommunicatorOptions options_;
  std::shared_ptr<GpuDriver> gpu_;  // null: the members have host memory
  std::array<std::unique_ptr<Compute>, kTurns> computes_;
  Windows windows_;
  Window* scratch_ = nullptr;
  std::vector<Rank> group_;  // for Bootstrap::gather(): empty if it is the whole job
  int rank_ = -1;
  bool is_all_mapped_ = false;
  Grouping grouping_;
  Grouping hosts_;
  Connections connections_;  // among the hosts, or the options' groups, if there are any
  Tuning tuning_;
  transport::NotifyId cells_{};  // first of kTurns * kStreams * size() cells on our board
  bool has_cells_ = false;
  std::vector<transport::NotifyId> first_cells_;  // by member
  // By member, for those that this one has spoken to. Plans refer to the entries.
  std::map<int, std::array<ExecutorPeer, kTurns>> peers_;
};

}  // namespace dunlin::collective
