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

#include "runtime/bootstrap/allowance.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/departures.h"
#include "runtime/bootstrap/fence_book.h"
#include "runtime/bootstrap/gather_book.h"
#include "runtime/bootstrap/lookup_book.h"
#include "runtime/bootstrap/membership_book.h"
#include "runtime/bootstrap/process_id.h"
#include "runtime/bootstrap/release_book.h"
#include "runtime/bootstrap/request_book.h"
#include "runtime/bootstrap/roster.h"
#include "runtime/bootstrap/value_book.h"
#include "runtime/bootstrap/wire.h"

namespace dunlin::bootstrap {

class JobLedger {
 public:
  using Send = std::function<void(Rank to, const Message& message)>;

  // Ranks 0 to `size` - 1 can take part. The first `founders` of them start the job.
  struct Places {
    int size = 1;
    int founders = 1;
  };
  // With a heartbeat of 0, no rank is ever stalled.
  JobLedger(Places places, Duration heartbeat, Send send);

  // A rank that no process has taken so far, for one that joins the running job; or why there is
  // none.
  Result<Rank> free_rank() const { return roster_.free_rank(); }

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

  PeerState state(Rank rank) const { return roster_.state(rank); }
  bool has_joined(Rank rank) const { return roster_.has_joined(rank); }
  // Whether it has left or is dead; false for ranks that the job does not have.
  bool is_gone(Rank rank) const { return roster_.is_gone(rank); }
  // The number of ranks that have joined and are neither dead nor have left.
  int active() const { return roster_.active(); }

 private:
  Status open_request(Rank from, const Message& message, TimePoint now);
  void cancel(Rank from, std::uint64_t request);
  void publish(Rank from, const Message& message);
  // Adds a rank's record to a gather, once.
  Status contribute(Rank from, const Message& message);
  // A message that nobody waits for an answer to was refused: logs the first one of each rank.
  void warn(Rank from, const Status& why);
  void gather(Rank from, const Message& message, TimePoint now);
  Status release(Rank from, const Message& message);
  void leave(Rank from, const Message& message, TimePoint now);
  void tell_due_departures(TimePoint now);
  Status forward_mail(Rank from, const Message& mail);
  // The rank takes no part any more. settle_end() answers what follows from that.
  void remove(Rank rank, PeerState state);
  void settle_end(Rank rank, const std::string& reason);
  void fail_start(Code code, const std::string& reason);
  void expire(Rank rank);
  void find_stalled(TimePoint now);

  // Each answers the requests that can be answered now.
  void settle_join();
  void settle_lookup(const std::string& key);
  void fail_lookup(Rank asker, Rank gone);
  void settle_gather(const std::string& name);
  void fail_gather(const std::string& name, Rank gone);
  void settle_barrier(const std::string& name);
  void settle_reform();

  std::vector<Rank> not_joined() const;
  // Whether all present members of the epoch have such an outstanding request.
  bool have_all_asked(MessageType type, const std::string& name) const {
    return requests_.count(type, name) == book_.present().size();
  }
  // Present members of the epoch without such an outstanding request.
  std::vector<Rank> missing(MessageType type, const std::string& name) const;
  void reply(Rank to, Message message);
  void fail(Rank to, Code code, std::string why, Rank subject = Rank());

  const Duration heartbeat_;
  Send send_;
  Roster roster_;
  std::vector<std::string> kernels_;  // ProcessId::kernel() of ranks that have joined
  // The PID namespaces of the ranks under each kernel, as ProcessId::space.
  std::map<std::string, std::set<std::string>, std::less<>> spaces_;
  std::vector<bool> was_warned_;  // ranks: of a value or release that was not kept
  RequestBook requests_;
  Allowance allowance_;  // for values and the records of gathers
  ValueBook values_;
  LookupBook lookups_{requests_, values_};
  GatherBook gathers_;
  ReleaseBook releases_;
  Departures departures_;
  MembershipBook book_;
  FenceBook fences_;
  bool has_started_ = false;   // all have joined
  std::optional<Status> end_;  // why the job failed to start
  TimePoint last_tick_{};
  TimePoint next_look_{};  // for stalled ranks
};

// "1, 3, 4"; long lists end in "and 17 more".
std::string list_ranks(const std::vector<Rank>& ranks);

}  // namespace dunlin::bootstrap
