// What workers and parameter servers say to one another: who is which, words, names of keys.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "apps/training/method.h"
#include "apps/training/methods/pieces.h"
#include "transports/channel/slot_exchange.h"

namespace dunlin::training {

// From worker to server; in a message's tag, with the number of the piece that it carries.
enum class ParameterWord : std::uint32_t {
  kInitial = 1,   // a piece of the initial parameters
  kGradient = 2,  // a piece of the iteration's gradient
  kFinish = 3,    // the iteration's end: FinishWord
  kLeave = 4,
};
struct ParameterTag {
  ParameterWord word = ParameterWord::kInitial;
  std::uint32_t piece = 0;
  std::uint64_t packed() const { return static_cast<std::uint64_t>(word) << 32 | piece; }
  static ParameterTag unpack(std::uint64_t tag) {
    return {static_cast<ParameterWord>(tag >> 32), static_cast<std::uint32_t>(tag)};
  }
};
// In the byte order of x86-64 and AArch64 as Linux runs them, little-endian.
struct FinishWord {
  float learning_rate = 0;
  std::uint32_t stop = 0;  // 1: this worker would like to end
};
static_assert(sizeof(FinishWord) == 8 && sizeof(FinishWord) <= transport::kInlineBytes &&
              std::is_trivially_copyable_v<FinishWord>);

// The answer of a server is a notification with the number of the worker's iteration, counted from
// 1, as its sequence, and this tag.
inline constexpr std::uint64_t kGoOn = 0;
inline constexpr std::uint64_t kStop = 1;

// Slots per worker at a server. Two keep a wire busy; with four, a server that is busy with another
// worker's piece doesn't hold this one up at once.
inline constexpr std::uint32_t kParameterDepth = 4;

struct ParameterRoles {
  ParameterRoles(const MethodOptions& options, int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      (rank < ranks - options.servers ? workers : servers).emplace_back(rank);
  }
  bool is_server(Rank rank) const { return rank >= servers.front(); }
  std::size_t index_of(Rank server) const { return server.index() - workers.size(); }

  std::vector<Rank> workers;
  std::vector<Rank> servers;
};

// The channels from workers to servers; for `rank`, who is one or the other.
inline transport::SlotOptions parameter_slots(const MethodOptions& options,
                                              const ParameterRoles& roles, Rank rank) {
  transport::SlotOptions slots;
  slots.name = options.name + "/gradients";
  (roles.is_server(rank) ? slots.in : slots.out) =
      roles.is_server(rank) ? roles.workers : roles.servers;
  const std::size_t longest = share_of(options.count, roles.servers.size(), 0).count;
  slots.slot_bytes = std::min(longest, options.piece_elements) * sizeof(float);
  slots.depth = kParameterDepth;
  return slots;
}

// Under which a worker publishes where servers put its parameters.
inline std::string parameters_key(const MethodOptions& options, Rank worker) {
  return fmt::format("training/{}/parameters/{}", options.name, worker.value());
}

}  // namespace dunlin::training
