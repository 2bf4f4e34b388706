// Runs a test's body as the ranks of a job, as threads of this process or as processes of their
// own, over the transports of the environment's configuration (DUNLIN_TRANSPORTS; the test suites
// set it).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::testing {

// How many times longer things may take than on real hardware and a good network: the environment's
// CONFORMANCE_PATIENCE, or 1.
int patience();

enum class PeerKind { kThreads, kProcesses };
std::string to_string(PeerKind kind);

using RankBody = std::function<void(transport::Fabric&)>;

struct RunOptions {
  PeerKind kind = PeerKind::kThreads;
  int size = 2;
  // Ranks that the body ends by SIGKILL (processes), and that therefore don't reach the end.
  std::set<int> killed;
  std::function<void(Config&)> configure;  // changes to the configuration
};

// The body runs once per rank; expectations inside it count for the test. Ranks end together.
void run_ranks(const RunOptions& options, const RankBody& body);

// A region of each rank, known to all the others, and cells beside it. Regions are zeroed.
class Exposed {
 public:
  // Collective over all ranks of the fabric.
  Exposed(transport::Fabric& fabric, const std::string& name, std::size_t bytes, std::size_t cells);

  transport::LocalRegion& local() { return *local_; }
  std::unique_ptr<transport::LocalRegion>& owned() { return local_; }
  transport::RemoteRegion& at(int rank) { return *remote_[static_cast<std::size_t>(rank)]; }
  // The peer's `index`-th cell, and our own.
  transport::NotifyId cell_at(int rank, std::size_t index) const;
  transport::NotifyId cell(std::size_t index) const {
    return cell_at(fabric_.rank().value(), index);
  }
  transport::Link& link(int rank) { return *fabric_.link(Rank(rank)).value(); }
  transport::Lane& data(int rank) { return link(rank).data(); }

 private:
  transport::Fabric& fabric_;
  std::unique_ptr<transport::LocalRegion> local_;
  std::vector<std::unique_ptr<transport::RemoteRegion>> remote_;
  std::vector<transport::NotifyId> cells_;
};

// Progresses until `done()`, for 30 s (times patience()) at most; false if it never was.
bool progress_until(transport::Fabric& fabric, const std::function<bool()>& done);
// Posts until it isn't busy; returns that status.
Status post(transport::Fabric& fabric, const std::function<Status()>& operation);
// Posts what `operation` does with a completion, and waits for it; how it ended.
Status complete(transport::Fabric& fabric,
                const std::function<Status(transport::Completion*)>& operation);
// Says nothing but its sequence.
transport::Notification notification(transport::NotifyId id, std::uint64_t sequence);
// Waits for the sequence to reach a cell of ours.
bool await_cell(transport::Fabric& fabric, transport::NotifyId cell, std::uint64_t sequence);
// Waits for all ranks, each name once; gives progress meanwhile.
void sync(transport::Fabric& fabric, const std::string& name);

// Bytes that depend on a seed and their position.
void fill(std::span<std::byte> bytes, std::uint64_t seed);
bool is_filled(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace dunlin::testing
