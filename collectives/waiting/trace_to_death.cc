#include "collectives/waiting/trace_to_death.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace dunlin::collective {
namespace {

// A notice of a death takes milliseconds on one host and at most a heartbeat between hosts.
constexpr auto kNewsTime = std::chrono::milliseconds(500);

bool may_follow_death(Code code) {
  return code == Code::kPeerDead || code == Code::kNotFound || code == Code::kClosed ||
         code == Code::kUnavailable || code == Code::kIoError;
}

}  // namespace

Status trace_to_death(transport::Fabric& fabric, Status error) {
  const PeerTable& peers = fabric.peers();
  const bool is_named = !error.peer() || peers.state(*error.peer()) == PeerState::kDead;
  if (is_named || !may_follow_death(error.code())) return error;
  const std::vector<Rank> members = fabric.bootstrap().membership().members;
  const auto death = [&]() -> Status {
    const auto dead = std::ranges::find_if(
        members, [&](Rank member) { return peers.state(member) == PeerState::kDead; });
    if (dead == members.end()) return Status::busy();
    return Status(Code::kPeerDead, fmt::format("rank {} is {}; because of that: {}", dead->value(),
                                               peers.describe(*dead), error.to_string()))
        .with_peer(*dead);
  };
  Status found = fabric.wait(
      death, [] { return std::vector<transport::Awaited>(); }, kNewsTime);
  return found.code() == Code::kPeerDead ? found : error;
}

}  // namespace dunlin::collective
