#include "tests/sim/unreliable_job.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace dunlin::testing {

using bootstrap::ConnectionEnd;
using bootstrap::Message;
using bootstrap::MessageType;

namespace {

constexpr Duration kLongestFlight = std::chrono::milliseconds(30);
constexpr Duration kLongestNotice = std::chrono::seconds(2);
constexpr Duration kSilence = bootstrap::kStallPeriods * UnreliableJob::kHeartbeat;
constexpr Duration kLease =
    UnreliableJob::kGrace * bootstrap::kCutOffNumerator / bootstrap::kCutOffDenominator;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

}  // namespace

UnreliableJob::UnreliableJob(int size, std::mt19937_64& random, TimePoint now)
    : random_(random),
      now_(now),
      start_(size),
      members_(static_cast<std::size_t>(size)),
      ledger_({size, size}, kHeartbeat, [this](Rank to, const Message& message) {
        Member& member = at(to.value());
        send_from(member.coordinator, member, message);
      }) {
  for (int rank = 0; rank < size; ++rank) {
    Member& member = at(rank);
    const auto send = [this, rank](const Message& message) {
      send_from(at(rank).here, at(rank), message);
    };
    Fences::Sender sender;
    sender.ask = [send](std::uint64_t number, Rank gone, std::vector<Rank> owners) {
      send({.type = MessageType::kFence,
            .subject = gone,
            .number = number,
            .ranks = std::move(owners)});
    };
    sender.confirm = [send](Rank gone) { send({.type = MessageType::kRevoked, .subject = gone}); };
    member.bootstrap =
        std::make_unique<UnreliableBootstrap>(start_.bootstrap(Rank(rank)), std::move(sender));
    member.heard = member.contact = member.next_beat = now;
    EXPECT_TRUE(ledger_.admit(Rank(rank), now).is_ok());
  }
  for (int rank = 0; rank < size; ++rank)
    send_from(at(rank).here, at(rank), {.type = MessageType::kJoin, .request = 1, .number = ~0ULL});
}

void UnreliableJob::fly(Member& member, End& from, const Message& message, TimePoint now) {
  if (!member.is_connected) return;
  TimePoint due = now + some_time(kLongestFlight);
  if (!from.flying.empty()) due = std::max(due, from.flying.back().due);
  from.flying.push_back({due, message});
}

void UnreliableJob::send_from(End& from, Member& member, const Message& message) {
  ASSERT_TRUE(from.session.keep(message, kNoLimit).is_ok());
  fly(member, from, message, now_);
}

void UnreliableJob::serve(TimePoint now) {
  now_ = now;
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
    Member& member = at(rank);
    auto& flying = member.here.flying;
    while (!member.is_cut && !flying.empty() && flying.front().due <= now) {
      const Message message = std::move(flying.front().message);
      flying.pop_front();
      take_at_coordinator(rank, message, now);
    }
    if (member.noticed_at && *member.noticed_at <= now) {
      member.noticed_at.reset();
      disconnect(member);
      absences_.begin(Rank(rank), ConnectionEnd::kBroken, now);
    }
  }
  ledger_.tick(now);
  for (const auto& [rank, reason] : absences_.take_due(now)) ledger_.declare_dead(rank, reason);
}

void UnreliableJob::take_at_coordinator(int rank, const Message& message, TimePoint now) {
  Member& member = at(rank);
  if (message.type == MessageType::kHeartbeat) {
    EXPECT_TRUE(member.coordinator.session.acknowledge(message.number).is_ok());
    fly(member, member.coordinator,
        {.type = MessageType::kHeartbeat,
         .request = message.request,
         .number = member.coordinator.session.received()},
        now);
  } else {
    member.coordinator.session.note_received(message);
  }
  const Status status = ledger_.receive(Rank(rank), message, now);
  EXPECT_TRUE(status.is_ok()) << status.to_string();
}

void UnreliableJob::monitor(int rank, TimePoint now) {
  now_ = now;
  Member& member = at(rank);
  Fences& fences = member.bootstrap->fences();
  if (member.has_ended || fences.is_cut_off()) return;
  auto& flying = member.coordinator.flying;
  while (!member.is_cut && !flying.empty() && flying.front().due <= now) {
    const Message message = std::move(flying.front().message);
    flying.pop_front();
    take_at_rank(member, rank, message, now);
  }
  if (member.is_connected && now - member.heard > kSilence) {
    disconnect(member);
    if (!member.is_cut) absences_.begin(Rank(rank), ConnectionEnd::kBroken, now);
  }
  if (!member.is_connected) {
    if (!member.is_cut) {
      come_back(rank, now);
    } else if (now - member.contact >= kLease) {
      fences.cut_off({Code::kUnavailable, "out of contact for too long"});
    }
  }
  if (member.is_connected && now >= member.next_beat) {
    member.next_beat = now + kHeartbeat;
    fly(member, member.here,
        {.type = MessageType::kHeartbeat,
         .request = static_cast<std::uint64_t>(now.time_since_epoch().count()),
         .number = member.here.session.received()},
        now);
  }
}

void UnreliableJob::take_at_rank(Member& member, int rank, const Message& message, TimePoint now) {
  member.heard = now;
  Fences& fences = member.bootstrap->fences();
  switch (message.type) {
    case MessageType::kHeartbeat:
      EXPECT_TRUE(member.here.session.acknowledge(message.number).is_ok());
      member.contact = TimePoint(Duration(static_cast<std::int64_t>(message.request)));
      return;
    case MessageType::kNotice:
      if (message.subject == Rank(rank) && message.state == PeerState::kDead) {
        fences.cut_off({Code::kClosed, "the others count this rank as dead"});
      } else {
        member.bootstrap->peers().mark(message.subject, message.state, message.text);
      }
      break;
    case MessageType::kRevoke:
      fences.on_revoke(message.subject);
      break;
    case MessageType::kFenced:
      fences.on_fenced(message.number);
      break;
    default:
      break;
  }
  member.here.session.note_received(message);
}

void UnreliableJob::come_back(int rank, TimePoint now) {
  Member& member = at(rank);
  if (!is_present(rank)) {
    member.bootstrap->fences().cut_off({Code::kClosed, "the others count this rank as gone"});
    return;
  }
  EXPECT_TRUE(member.here.session.acknowledge(member.coordinator.session.received()).is_ok());
  EXPECT_TRUE(member.coordinator.session.acknowledge(member.here.session.received()).is_ok());
  member.is_connected = true;
  member.noticed_at.reset();
  absences_.end(Rank(rank));
  member.heard = member.contact = member.next_beat = now;
  for (const Message& message : member.here.session.kept()) fly(member, member.here, message, now);
  for (const Message& message : member.coordinator.session.kept())
    fly(member, member.coordinator, message, now);
}

void UnreliableJob::cut(int rank, TimePoint now) {
  Member& member = at(rank);
  member.is_cut = true;
  if (random_() % 2 == 0) disconnect(member);  // by a RST to the rank
  member.noticed_at = now + some_time(kLongestNotice);
}

void UnreliableJob::heal(int rank, TimePoint now) {
  Member& member = at(rank);
  member.is_cut = false;
  // TCP sends again what was lost, unless one of the ends has given up.
  if (member.is_connected && !member.has_ended) member.noticed_at.reset();
  if (member.has_ended) absences_.begin(Rank(rank), ConnectionEnd::kBroken, now);
}

void UnreliableJob::disconnect(Member& member) {
  member.is_connected = false;
  member.here.flying.clear();
  member.coordinator.flying.clear();
}

void UnreliableJob::end(int rank, bool is_seen, TimePoint now) {
  Member& member = at(rank);
  member.has_ended = true;
  if (is_seen) {
    absences_.note_ended(Rank(rank), "its process has ended", now);
  } else if (!member.is_cut) {
    absences_.begin(Rank(rank), ConnectionEnd::kClosed, now);
  }
}

}  // namespace dunlin::testing
