// Plans: programs that were generated for one kind of call, and what they run on, kept for the next
// call of the kind.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "collectives/communicator/window.h"
#include "collectives/schedule/algorithm.h"
#include "collectives/schedule/executor.h"

namespace dunlin::collective {

// Operations take turns in their cells and their scratch: number n has those of turn n % kTurns.
// With at most kInFlight of them under way, whoever has ended number n + kInFlight of a collective
// that synchronizes knows that everybody has ended number n: its turn is free everywhere.
inline constexpr std::uint64_t kInFlight = 4;
inline constexpr std::uint64_t kTurns = 2 * kInFlight;

struct PlanKey {
  Problem problem;
  const Algorithm* algorithm = nullptr;
  std::size_t element = 0;  // bytes

  auto tie() const {
    return std::tuple(problem.collective, problem.count, problem.root, algorithm, element);
  }
  bool operator==(const PlanKey& other) const { return tie() == other.tie(); }
  bool operator<(const PlanKey& other) const { return tie() < other.tie(); }
};

struct Plan {
  PlanKey key;
  Program program;
  std::array<bool, kBufferKinds> touches_peers{};  // their buffers of that kind
  // By turn.
  std::array<std::vector<ExecutorPeer*>, kTurns> peers;
  std::array<std::vector<std::array<PeerBuffer, kBufferKinds>>, kTurns> buffers;
};

// Where the members' buffers of one kind are: in the same window, each a stride after the one
// before.
struct Placement {
  Window* window = nullptr;  // null: none was given
  std::size_t first = 0;     // member 0's, in bytes
  std::size_t stride = 0;    // 0: all at the same place
  std::size_t at(int member) const { return first + static_cast<std::size_t>(member) * stride; }
};

// Sets where the plan's peers have their buffers in this turn.
void place(Plan& plan, std::uint64_t turn, BufferKind kind, const Placement& placement);

}  // namespace dunlin::collective
