// JobLedger: what the coordinator knows and decides, without sockets, threads or a clock.
//
// It keeps who has joined, left, stalled or died, the published values, and at most one open
// request of every rank; it answers through `send`. The coordinator feeds it with what arrives over
// TCP, the in-process job with direct calls, tests with whatever they like. Not thread-safe: its
// owner calls from one thread, or under one lock. `send` must not call back into the ledger.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/wire.h"

namespace dunlin::bootstrap {

class JobLedger {
 public:
  using Send = std::function<void(Rank to, const Message& message)>;

  // With a heartbeat of 0 nobody ever counts as stalled.
  JobLedger(int size, Duration heartbeat, Send send);

  // A rank has joined and can be sent to. An error says why it may not.
  Status admit(Rank rank, TimePoint now);
  // A message of a rank that was admitted. An error means that the rank breaks the protocol and its
  // connection should end.
  Status receive(Rank from, const Message& message, TimePoint now);
  // The rank is gone without a good-bye. Before all have joined, this ends the job's start.
  void lose(Rank rank, const std::string& reason);
  // Answers requests whose time is over and finds out who has gone silent.
  void tick(TimePoint now);
  // When tick() has something to do next, at the latest.
  TimePoint next_tick(TimePoint now) const;

  PeerState state(Rank rank) const { return members_[rank.index()].state; }
  bool has_joined(Rank rank) const { return members_[rank.index()].has_joined; }
  // Ranks that joined, are alive and not silent.
  int active() const;

 private:
  struct Request {
    MessageType type;
    std::uint64_t number;
    std::string name;
    TimePoint deadline;
  };
  struct Member {
    PeerState state = PeerState::kAlive;
    bool has_joined = false;
    TimePoint last_heard{};
    std::optional<Request> request;
  };

  Status open_request(Rank from, const Message& message, TimePoint now);
  void publish(Rank from, const Message& message);
  Status hand_on(Rank from, const Message& letter);
  void change_state(Rank rank, PeerState state, const std::string& reason);
  void remove(Rank rank, PeerState state, const std::string& reason);
  void fail_start(Code code, const std::string& reason);
  void expire(Rank rank);
  void find_stalled(TimePoint now);

  // Each answers whom it can by now.
  void settle_join();
  void settle_lookup(const std::string& key);
  void settle_barrier(const std::string& name);
  void settle_reform();

  bool is_present(const Member& member) const;
  std::vector<Rank> not_joined() const;
  // Present members of the epoch that have no such request open.
  std::vector<Rank> missing(MessageType type, const std::string& name) const;
  // Who has such a request open.
  std::vector<Rank> waiting(MessageType type, const std::string& name) const;
  void reply(Rank to, Message message);
  void fail(Rank to, Code code, std::string why, Rank subject = Rank());

  std::vector<Member> members_;
  Duration heartbeat_;
  Send send_;
  std::map<std::string, Bytes, std::less<>> values_;
  Membership membership_;
  bool has_started_ = false;   // all have joined
  std::optional<Status> end_;  // why the job failed to start
  TimePoint last_tick_{};
};

// "1, 3, 4"; long lists end in "and 17 more".
std::string list_ranks(const std::vector<Rank>& ranks);

}  // namespace dunlin::bootstrap
