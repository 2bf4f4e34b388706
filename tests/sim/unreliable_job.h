// UnreliableJob: the bootstrap of a job whose connections to the coordinator break and heal, in
// virtual time. It runs the parts that decide (JobLedger, Absences, Session, Fences); the network
// between them is made of queues. Ranks can stop for a while, end, be cut off, and be disowned: the
// coordinator counts them as dead although nothing is wrong with them.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "runtime/bootstrap/absences.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/job_ledger.h"
#include "runtime/bootstrap/session.h"
#include "tests/support/forwarding_bootstrap.h"

namespace dunlin::testing {

// What one rank's fabric sees: everything but peers and fences comes from a job without faults,
// which serves the start.
class UnreliableBootstrap final : public ForwardingBootstrap {
 public:
  UnreliableBootstrap(std::unique_ptr<Bootstrap> start, Fences::Sender sender)
      : ForwardingBootstrap(*start),
        start_(std::move(start)),
        peers_(start_->size()),
        fences_(std::move(sender)) {}

  PeerTable& peers() override { return peers_; }
  Fences& fences() override { return fences_; }
  void leave() noexcept override {}

 private:
  std::unique_ptr<Bootstrap> start_;
  PeerTable peers_;
  Fences fences_;
};

class UnreliableJob {
 public:
  static constexpr Duration kHeartbeat = std::chrono::milliseconds(20);
  static constexpr Duration kGrace = std::chrono::seconds(4);

  UnreliableJob(int size, std::mt19937_64& random, TimePoint now);

  Bootstrap& bootstrap(int rank) { return *at(rank).bootstrap; }
  // The coordinator's turn: what has arrived, and what is due.
  void serve(TimePoint now);
  // The turn of a rank's monitor thread. A rank that is stopped or has ended has none.
  void monitor(int rank, TimePoint now);

  // The path carries nothing until it heals. The coordinator notices at some time, or when the rank
  // is back.
  void cut(int rank, TimePoint now);
  void heal(int rank, TimePoint now);
  // The process of the rank ends. `is_seen`: the coordinator can watch it; otherwise it gets a FIN,
  // unless the path is cut.
  void end(int rank, bool is_seen, TimePoint now);
  // The coordinator counts the rank as dead, for whatever reason.
  void disown(int rank) { ledger_.declare_dead(Rank(rank), "disowned by the test"); }

  bool is_present(int rank) const {
    const PeerState state = ledger_.state(Rank(rank));
    return state == PeerState::kAlive || state == PeerState::kStalled;
  }

 private:
  struct Flight {
    TimePoint due;
    bootstrap::Message message;
  };
  // One end of a rank's connection: what it has sent and what is on its way from it.
  struct End {
    bootstrap::Session session;
    std::deque<Flight> flying;  // from this end to the other
  };
  struct Member {
    std::unique_ptr<UnreliableBootstrap> bootstrap;
    End here;
    End coordinator;
    bool is_connected = true;  // as the rank knows
    bool is_cut = false;
    bool has_ended = false;
    std::optional<TimePoint> noticed_at;  // when the coordinator notices that the path is cut
    TimePoint heard{};
    TimePoint contact{};
    TimePoint next_beat{};
  };
  Member& at(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  Duration some_time(Duration most) {
    return Duration(
        static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most.count())));
  }
  void fly(Member& member, End& from, const bootstrap::Message& message, TimePoint now);
  void send_from(End& from, Member& member, const bootstrap::Message& message);
  void take_at_rank(Member& member, int rank, const bootstrap::Message& message, TimePoint now);
  void take_at_coordinator(int rank, const bootstrap::Message& message, TimePoint now);
  static void disconnect(Member& member);
  void come_back(int rank, TimePoint now);

  std::mt19937_64& random_;
  TimePoint now_;
  InProcessJob start_;
  std::vector<Member> members_;
  bootstrap::JobLedger ledger_;
  bootstrap::Absences absences_{kGrace};
};

}  // namespace dunlin::testing
