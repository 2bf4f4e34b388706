// Runs the body of a test as the ranks of a job. The ranks are threads of this process or
// processes. They use the transports of DUNLIN_TRANSPORTS, which the test suites set.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::testing {

// The factor by which slow hardware or networks extend timeouts: the environment variable
// CONFORMANCE_TIMEOUT_FACTOR, or 1.
int timeout_factor();

enum class PeerKind { kThreads, kProcesses };
std::string to_string(PeerKind kind);

using RankBody = std::function<void(transport::Fabric&)>;

struct RunOptions {
  PeerKind kind = PeerKind::kThreads;
  int size = 2;
  // Ranks that the body kills with SIGKILL (processes only). They do not reach the end of the test.
  std::set<int> killed;
  std::function<void(Config&)> configure;  // changes to the configuration
  std::function<void()> at_end{};  // called in each rank's process when its fabric has ended
};

// Runs the body once per rank. Failed expectations in it fail the test. Ranks end together.
void run_ranks(const RunOptions& options, const RankBody& body);

// A suite whose tests run with ranks of either kind.
class OverPeers : public ::testing::TestWithParam<PeerKind> {
 protected:
  static void run(int size, const RankBody& body) {
    run_ranks({.kind = GetParam(), .size = size, .killed = {}, .configure = {}}, body);
  }
};

// One zeroed region and some notification cells of each rank, which all ranks can access.
class Exposed {
 public:
  // All ranks of the fabric call it.
  Exposed(transport::Fabric& fabric, const std::string& name, std::size_t bytes, std::size_t cells)
      : Exposed(fabric, name, fabric.allocate(bytes).value(), cells) {}
  Exposed(transport::Fabric& fabric, const std::string& name,
          std::unique_ptr<transport::LocalRegion> local, std::size_t cells);

  transport::LocalRegion& local() { return *local_; }
  std::unique_ptr<transport::LocalRegion>& owned() { return local_; }
  transport::RemoteRegion& at(int rank) { return *remote_[static_cast<std::size_t>(rank)]; }
  // The `index`-th cell of a rank, and of this rank.
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

// Calls progress() until `done()` returns true. Returns false after 30 s times timeout_factor().
bool progress_until(transport::Fabric& fabric, const std::function<bool()>& done);
// Calls `operation` until it returns a Status other than busy, and returns that Status.
Status post(transport::Fabric& fabric, const std::function<Status()>& operation);
// Posts `operation` with a completion, waits for it, and returns its Status.
Status complete(transport::Fabric& fabric,
                const std::function<Status(transport::Completion*)>& operation);
// A notification that carries only its sequence number.
transport::Notification notification(transport::NotifyId id, std::uint64_t sequence);
// Waits until a cell of this rank has the sequence number.
bool await_cell(transport::Fabric& fabric, transport::NotifyId cell, std::uint64_t sequence);
// Waits for all ranks and makes progress meanwhile. Each name can be used once.
void sync(transport::Fabric& fabric, const std::string& name);
// Sends a message over both lanes between any two ranks, each way. From then on, all connections
// are made. All ranks of the fabric call it.
void connect_all(transport::Fabric& fabric, const std::string& name);

// Bytes that depend on a seed and their position.
void fill(std::span<std::byte> bytes, std::uint64_t seed);
bool is_filled(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace dunlin::testing
