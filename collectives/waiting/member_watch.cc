#include "collectives/waiting/member_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/flight/recorder.h"

namespace dunlin::collective {

const Rank* MemberWatch::find(PeerState state) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const Rank member) {
    return fabric_.peers().state(member) == state;
  });
  return found == members_.end() ? nullptr : &*found;
}

Status MemberWatch::report_death(Rank dead, const Awaited& awaited, TimePoint began) const {
  std::string waiting;
  for (const transport::Awaited& wait : awaited) {
    waiting +=
        fmt::format("{}{} from rank {}", waiting.empty() ? "" : ", ", wait.what, wait.peer.value());
  }
  Status death =
      Status(Code::kPeerDead,
             fmt::format("rank {} is {}; rank {} had waited {:.3f} s for {}", dead.value(),
                         fabric_.peers().describe(dead), fabric_.rank().value(),
                         to_seconds(fabric_.clock().now() - began),
                         waiting.empty() ? "nothing" : waiting))
          .with_peer(dead);
  if (flight::Recorder* const flight = fabric_.flight()) flight->fail(death);
  return death;
}

// A rank may wait for a peer that itself waits for a stopped member. Then name the stopped member.
Status MemberWatch::name_stalled(Status error) const {
  const Rank* const stalled = find(PeerState::kStalled);
  if (stalled == nullptr) return error;
  return Status(Code::kPeerStalled,
                fmt::format("{}; rank {} is {}", error.message(), stalled->value(),
                            fabric_.peers().describe(*stalled)))
      .with_peer(*stalled);
}

}  // namespace dunlin::collective
