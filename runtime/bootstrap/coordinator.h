// Coordinator: the server of a job. It runs in a thread of dunlin-run or of one rank, which is rank
// 0 except under `dunlin-perf --listen`.
//
// It accepts connections, authenticates them with the job secret, and passes their messages to the
// JobLedger. It never blocks on one connection: unauthenticated connections have a short deadline
// and small messages, and members that read slowly have a bounded buffer. A connection that
// violates the protocol is logged with its address and the cause, and is closed. This does not
// affect the others. A connection that ends otherwise is no death by itself (README, "Deaths and
// outages"): the rank's session is kept for its next connection. When there are too many
// unauthenticated connections, the oldest gives way. The log gets at most one line per second about
// them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/bootstrap/event_queue.h"
#include "runtime/bootstrap/handshake.h"
#include "runtime/bootstrap/job_ledger.h"
#include "runtime/bootstrap/life_watch.h"
#include "runtime/bootstrap/paced_log.h"
#include "runtime/bootstrap/session.h"

namespace dunlin::bootstrap {

class Coordinator {
 public:
  struct Options {
    int size = 1;
    int founders = 0;      // 0: all ranks; otherwise those from there on may join later
    std::string job_id{};  // empty: a random one
    std::string secret{};
    Duration heartbeat{};
    Duration grace = std::chrono::seconds(30);  // how long a rank may be without a connection
    Endpoint listen{};
  };
  // Listens and starts the thread. When it returns, the address is in use.
  static Result<std::unique_ptr<Coordinator>> start(Options options);
  // Sends what is still unsent, for at most a quarter of a second, and closes all connections.
  ~Coordinator();

  // The address with the real port. Any thread, like all methods below.
  const Endpoint& address() const { return address_; }
  const std::string& job_id() const { return job_.id; }
  // Declares dead a rank whose process has ended. A launcher calls it for processes that have not
  // left the job, whether they had joined or not.
  void declare_dead(Rank rank, std::string reason);
  // Waits until no rank is active(). Returns false when the deadline comes first.
  bool wait_until_empty(TimePoint deadline);
  // The number of ranks that have joined and are neither dead nor have left.
  int active() const { return active_.load(std::memory_order_relaxed); }

 private:
  struct Connection;
  // A rank that has joined, whatever has become of its connection.
  struct Member {
    Connection* connection = nullptr;  // null: it has none now
    Session session;
    Nonce key{};
    bool has_session = false;
  };

  // Whose descriptor an event is of: EventQueue::Source::kind. A connection's number is that of its
  // arrival, a process's the rank.
  enum Kind : std::uint8_t { kWake, kListener, kConnection, kProcess };

  Coordinator(Options options, Fd listener, Fd wake, EventQueue events);
  void run();
  // Returns the events, with the listener's last, so that ranks are served before strangers take
  // their places.
  std::vector<EventQueue::Event> wait_for_events();
  void handle_event(const EventQueue::Event& event);
  void unwatch_process(Rank rank);
  // Waits until the socket takes more, while something is unsent.
  void watch_output(Connection& connection);
  void let_in(Fd socket);
  // Accepts no connections for a while.
  void pause_listening();
  void resume_listening();
  void accept_connections();
  void make_room();
  void serve(Connection& connection, std::uint32_t events);
  void expire_strangers(TimePoint now);
  Status handle(Connection& connection, const Message& message);
  Status handle_member(Connection& connection, const Message& message);
  Status admit(Connection& connection, const Message& welcome);
  Status resume(Connection& connection, const Message& welcome);
  std::optional<Resumption> session_of(Rank rank) const;
  void acknowledge(Connection& connection, std::uint64_t request);
  void refuse(Connection& connection, const Status& why);
  void drop(Connection& connection, const Status& why);
  // Declares the rank dead, because its session cannot go on.
  void end_session(Rank rank, const Status& why);
  void declare_due(TimePoint now);
  void send(Rank to, const Message& message);
  void remove_dropped();
  void run_posted();
  void post(std::function<void()> action);
  void finish_writing();
  void write_logs(TimePoint now);
  std::size_t most_strangers() const;
  TimePoint next_event(TimePoint now) const;

  // Constant once the thread has started.
  Authenticator::Job job_;
  Endpoint address_;
  UninheritedFd listener_;
  Fd wake_;
  EventQueue events_;

  // Used by the thread only.
  SteadyClock clock_;
  JobLedger ledger_;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;  // by arrival
  std::uint64_t arrivals_ = 0;
  std::set<std::uint64_t> strangers_;   // connections that have not authenticated, by arrival
  std::vector<std::uint64_t> dropped_;  // connections to remove
  std::vector<std::pair<Rank, std::string>> ended_;  // ranks to declare dead, and why
  std::vector<Member> members_;                      // by rank
  LifeWatch lives_;
  bool is_stopping_ = false;
  std::optional<TimePoint> listens_again_;  // set when the process has run out of descriptors
  PacedLog refusals_{"connections refused"};
  PacedLog accept_errors_{"failures"};

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // under mutex_
  std::condition_variable emptier_;
  std::atomic<int> active_{0};
  std::thread thread_;
};

}  // namespace dunlin::bootstrap
