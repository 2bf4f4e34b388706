// JobLedger: the state and the decisions of the coordinator, without sockets, threads or a clock.
//
// It stores which ranks have joined, left, stalled or died, the published values, and at most one
// outstanding request of every rank. What it does for a message does not grow with the job, except
// where the message concerns all ranks. It answers through `send`, which must not call the ledger.
// The coordinator passes it the messages that arrive over TCP; InProcessJob and tests call it
// directly. Calls must come from one thread or be serialized by a lock.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/fence_book.h"
#include "runtime/bootstrap/gather_book.h"
#include "runtime/bootstrap/process_id.h"
#include "runtime/bootstrap/request_book.h"
#include "runtime/bootstrap/wire.h"

namespace dunlin::bootstrap {

class JobLedger {
 public:
  using Send = std::function<void(Rank to, const Message& message)>;

  // With a heartbeat of 0, no rank is ever stalled.
  JobLedger(int size, Duration heartbeat, Send send);

  // Admits a rank, to which messages can be sent from now on. The error says why it is refused.
  // `process` is the rank's; without a space, the rank counts as alone under its kernel.
  Status admit(Rank rank, TimePoint now, const ProcessId& process = {});
  // Handles a message from an admitted rank. On an error, the rank has violated the protocol, and
  // its connection should be closed.
  Status receive(Rank from, const Message& message, TimePoint now);
  // Declares dead a rank that has not left. Before all ranks have joined, the start of the job
  // fails.
  void declare_dead(Rank rank, const std::string& reason) { declare_dead({{rank, reason}}); }
  // The same for several ranks, each with the reason. None of them is told of the others.
  void declare_dead(const std::vector<std::pair<Rank, std::string>>& deaths);
  // Answers requests whose deadline has passed, detects stalled ranks, and tells of departures that
  // are due.
  void tick(TimePoint now);
  // Sends the pending notice of departures now, and then answers the ranks that leave. tick() does
  // so when the notice is due (kDepartureInterval). Returns false if there was none.
  bool tell_departures();
  // The latest time at which tick() must be called next.
  TimePoint next_tick(TimePoint now) const;

  PeerState state(Rank rank) const { return members_[rank.index()].state; }
  bool has_joined(Rank rank) const { return members_[rank.index()].has_joined; }
  // The number of ranks that have joined and are neither dead nor have left.
  int active() const { return active_; }

 private:
  struct Member {
    PeerState state = PeerState::kAlive;
    bool has_joined = false;
    TimePoint last_heard{};
    std::size_t kept_keys = 0;  // of values and gathers
    std::size_t kept_bytes = 0;
    bool was_warned = false;  // of a value that was not kept
    std::string kernel{};     // ProcessId::kernel()
  };

  Status open_request(Rank from, const Message& message, TimePoint now);
  void cancel(Rank from, std::uint64_t request);
  void publish(Rank from, const Message& message);
  Status keep(Rank from, const Message& message);
  // Counts what a rank wants to be kept until the job ends, and refuses what is too much.
  Status charge(Rank from, const Message& message);
  // Adds a rank's record to a gather, once.
  Status contribute(Rank from, const Message& message);
  // A message that nobody waits for an answer to was refused: logs the first one of each rank.
  void warn(Rank from, const Status& why);
  void gather(Rank from, const Message& message, TimePoint now);
  void leave(Rank from, const Message& message, TimePoint now);
  void tell_due_departures(TimePoint now);
  Status forward_mail(Rank from, const Message& mail);
  void change_state(Rank rank, PeerState state, const std::string& reason);
  // The rank takes no part any more. settle_end() answers what follows from that.
  void remove(Rank rank, PeerState state);
  void settle_end(Rank rank, const std::string& reason);
  // To all ranks that are present.
  void broadcast(const Message& notice);
  void fail_start(Code code, const std::string& reason);
  void expire(Rank rank);
  void find_stalled(TimePoint now);

  // Each answers the requests that can be answered now.
  void settle_join();
  void settle_lookup(const std::string& key);
  void settle_lookups_from(Rank gone);
  void settle_gather(const std::string& name);
  void fail_gather(const std::string& name, Rank gone);
  void settle_barrier(const std::string& name);
  void settle_reform();

  bool is_present(const Member& member) const;
  bool is_gone(Rank rank) const;  // false for ranks that the job does not have
  std::vector<Rank> not_joined() const;
  // Whether all present members of the epoch have such an outstanding request.
  bool have_all_asked(MessageType type, const std::string& name) const {
    return requests_.count(type, name) == present_;
  }
  // Present members of the epoch without such an outstanding request.
  std::vector<Rank> missing(MessageType type, const std::string& name) const;
  void reply(Rank to, Message message);
  void fail(Rank to, Code code, std::string why, Rank subject = Rank());

  std::vector<Member> members_;
  // The PID namespaces of the ranks under each kernel, as ProcessId::space.
  std::map<std::string, std::set<std::string>, std::less<>> spaces_;
  std::size_t present_;  // members of the epoch that are neither dead nor have left
  int active_ = 0;
  Duration heartbeat_;
  Send send_;
  RequestBook requests_;
  std::map<std::string, Bytes, std::less<>> values_;
  GatherBook gathers_;
  FenceBook fences_;
  Membership membership_;
  std::vector<Rank> dead_;                                  // of the epoch
  std::vector<std::pair<Rank, std::uint64_t>> departures_;  // not told yet: rank, its request
  bool has_told_departures_ = false;                        // since next_departures_ was set
  TimePoint next_departures_{};                             // when to tell of the next ones
  bool has_started_ = false;                                // all have joined
  std::optional<Status> end_;                               // why the job failed to start
  TimePoint last_tick_{};
  TimePoint next_look_{};  // for stalled ranks
};

// "1, 3, 4"; long lists end in "and 17 more".
std::string list_ranks(const std::vector<Rank>& ranks);

}  // namespace dunlin::bootstrap
