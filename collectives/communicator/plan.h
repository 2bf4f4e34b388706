// Plan: a program that was generated for one kind of call, with the memory that it runs on. Plans
// are kept for later calls of the same kind.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "collectives/communicator/window.h"
#include "collectives/schedule/algorithm.h"
#include "collectives/schedule/executor.h"

namespace dunlin::collective {

// Parts share kTurns sets of notification cells and scratch memory: part n uses set n % kTurns, its
// turn. At most kInFlight parts are in progress, so a member enters part n + kInFlight only after
// it has completed part n. Hence, once part n + kInFlight of a synchronizing collective has
// completed, every member has completed part n, and its turn is free on all members.
inline constexpr std::uint64_t kInFlight = 4;
inline constexpr std::uint64_t kTurns = 2 * kInFlight;

struct PlanKey {
  Problem problem;
  const Algorithm* algorithm = nullptr;
  std::size_t element = 0;  // bytes per element

  auto tie() const {
    return std::tuple(problem.collective, problem.count, problem.root, algorithm, element);
  }
  bool operator==(const PlanKey& other) const { return tie() == other.tie(); }
  bool operator<(const PlanKey& other) const { return tie() < other.tie(); }
};

// What a program moves between its rank and a peer by loads and stores in the peer's memory, which
// no lane counts.
struct DirectBytes {
  Rank peer;
  std::uint64_t put = 0;
  std::uint64_t got = 0;
};

struct Plan {
  PlanKey key;
  Program program;
  std::vector<DirectBytes> direct;
  std::array<bool, kBufferKinds> touches_peers{};  // whether it accesses peers' buffers of a kind
  // Both are indexed by turn, then by peer.
  std::array<std::vector<ExecutorPeer*>, kTurns> peers;
  std::array<std::vector<std::array<PeerBuffer, kBufferKinds>>, kTurns> buffers;
};

// The plans that were used last. A plan that is dropped lives on while another object shares it.
class PlanCache {
 public:
  // A training step makes tens of different calls. A plan takes kilobytes.
  static constexpr std::size_t kMostPlans = 256;

  // Null if the plan is not in the cache.
  std::shared_ptr<Plan> find(const PlanKey& key);
  // Adds a plan that is not in the cache. Drops the one that was not used for the longest time if
  // there are too many.
  void insert(std::shared_ptr<Plan> plan);
  std::size_t size() const { return plans_.size(); }

 private:
  struct Entry {
    std::shared_ptr<Plan> plan;
    std::uint64_t last_use = 0;
  };
  std::map<PlanKey, Entry> plans_;
  std::uint64_t uses_ = 0;
};

// Computes Plan::direct. `peers` are those of the program.
std::vector<DirectBytes> direct_bytes_of(const Program& program, std::size_t element,
                                         const std::vector<ExecutorPeer*>& peers);

// Where the members' buffers of one kind are: all in the same window, at an offset that grows by
// `stride` from member to member.
struct Placement {
  Placement() = default;
  Placement(Window* in, std::size_t first_at, std::size_t stride_of)
      : window(in), window_id(in->id), first(first_at), stride(stride_of) {}

  Window* window = nullptr;  // null: the call passes no such buffer. Dangles once it is freed.
  std::uint32_t window_id = 0;
  std::size_t first = 0;   // offset of member 0's buffer, in bytes
  std::size_t stride = 0;  // 0: the same offset on all members
  std::size_t at(int member) const { return first + static_cast<std::size_t>(member) * stride; }
};

// Records where the plan's peers have their buffers in this turn.
void place(Plan& plan, std::uint64_t turn, BufferKind kind, const Placement& placement);

}  // namespace dunlin::collective
