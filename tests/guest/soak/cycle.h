// Cycle: the life of one fabric: links to all ranks, messages on both lanes of each all the time,
// and libraries that are registered, read and deregistered in rounds. Owner thread only.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "tests/guest/soak/access.h"
#include "tests/guest/soak/stream.h"
#include "tests/guest/soak/totals.h"
#include "tests/support/scoped_bootstrap.h"
#include "transports/fabric.h"

namespace dunlin::soak {

inline transport::Lane& lane_of(transport::Link& link, transport::LaneKind kind) {
  return kind == transport::LaneKind::kData ? link.data() : link.control();
}

struct CycleOptions {
  std::uint64_t number = 0;
  std::uint64_t seed = 0;
  std::uint64_t rounds = 1;
  Duration round{};
  Duration timeout{};  // of waits for other ranks
};

class Cycle {
 public:
  // Collective over all ranks, like run().
  static Result<std::unique_ptr<Cycle>> create(Bootstrap& bootstrap, const Config& config,
                                               const CycleOptions& options);
  ~Cycle();
  // Returns when all messages of all ranks have been taken, and no operation is in progress.
  Status run();
  Totals totals() const;

 private:
  // Everything between this rank and another rank, or itself.
  struct Peer {
    transport::Link* link = nullptr;
    std::unique_ptr<transport::RemoteRegion> slots;
    transport::NotifyId cells{};  // the first of the peer's cells
    std::deque<Sender> senders;   // by lane
    std::deque<Receiver> receivers;
    std::deque<Prober> probers;
    std::unique_ptr<transport::RemoteRegion> library;
  };

  Cycle(Bootstrap& bootstrap, const Config& config, const CycleOptions& options);
  Status prepare();
  Status connect(Rank rank);
  void make_streams(Rank rank);
  Status run_round(std::uint64_t round);
  Status exchange_libraries(std::uint64_t round);
  Status check_counters(std::uint64_t expected);
  Status finish();
  Status flush();
  Status part();
  // Collective: every rank passes one number for each rank. Returns the numbers of all ranks for
  // this one.
  Result<std::vector<std::uint64_t>> meet(const std::vector<std::uint64_t>& numbers);

  // One step of all senders, receivers and probers.
  Status step();
  // Steps until `is_over()` returns true.
  template <typename IsOver>
  Status step_until(IsOver&& is_over, Duration timeout, const char* what);
  std::vector<transport::Awaited> describe(const char* what) const;

  std::size_t ranks() const { return peers_.size(); }
  std::uint64_t seed_of_stream(Rank from, Rank to, transport::LaneKind lane) const;
  std::uint64_t seed_of_library(Rank owner, std::uint64_t round) const;
  // The cells of a rank for the streams from `from`, and for meet() with it.
  transport::NotifyId slot_cells(transport::NotifyId first, Rank from,
                                 transport::LaneKind lane) const;
  transport::NotifyId acknowledgment(transport::NotifyId first, Rank from,
                                     transport::LaneKind lane) const;
  transport::NotifyId meeting_cell(transport::NotifyId first, Rank from) const;

  const CycleOptions options_;
  const Config config_;
  const SteadyClock clock_;
  testing::ScopedBootstrap bootstrap_;
  std::unique_ptr<transport::Fabric> fabric_;
  std::unique_ptr<transport::LocalRegion> incoming_;
  std::unique_ptr<transport::LocalRegion> outgoing_;
  std::unique_ptr<transport::LocalRegion> landing_;
  transport::NotifyId cells_{};
  std::unique_ptr<Library> library_;
  std::vector<Peer> peers_;
  std::uint64_t meetings_ = 0;
  bool is_finished_ = false;
};

}  // namespace dunlin::soak
