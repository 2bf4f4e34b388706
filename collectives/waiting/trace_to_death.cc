#include "collectives/waiting/trace_to_death.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "collectives/waiting/member_watch.h"

namespace dunlin::collective {
namespace {

// A notice of a death takes milliseconds on one host and at most a heartbeat between hosts.
constexpr auto kNewsTime = std::chrono::milliseconds(500);
// For survivors, which lose more than time if they miss it.
constexpr auto kNewsTimeOfSurvivors = std::chrono::seconds(2);

bool may_follow_death(Code code) {
  return code == Code::kNotFound || code == Code::kClosed || code == Code::kUnavailable ||
         code == Code::kIoError;
}

}  // namespace

Status trace_to_death(transport::Fabric& fabric, Status error) {
  const PeerTable& peers = fabric.peers();
  const bool is_named = !error.peer() || peers.state(*error.peer()) == PeerState::kDead;
  const bool is_death = error.code() == Code::kPeerDead;
  if (is_named || !(is_death || may_follow_death(error.code()))) return error;
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

Status name_death(transport::Fabric& fabric, const std::vector<Rank>& members, Status outcome) {
  if (!may_follow_death(outcome.code())) return outcome;
  MemberWatch watch(fabric, members);
  Status news = watch.wait([] { return Status::busy(); },
                           [] { return std::vector<transport::Awaited>(); }, kNewsTimeOfSurvivors);
  return news.code() == Code::kPeerDead ? news : outcome;
}

}  // namespace dunlin::collective
