// Coordinator: the one server of a job, in a thread of its own inside dunlin-run or one of the
// ranks (rank 0, but for dunlin-perf's listener).
//
// It listens, lets in who proves that they know the job secret, and connects them with the
// JobLedger. It never blocks on a connection: strangers have a short deadline and small messages,
// slow readers a bounded buffer. Whatever breaks the protocol is logged with its address and cause
// and loses its connection; nobody else notices.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/bootstrap/handshake.h"
#include "runtime/bootstrap/job_ledger.h"

namespace dunlin::bootstrap {

class Coordinator {
 public:
  struct Options {
    int size = 1;
    std::string job_id{};  // empty: a random one
    std::string secret{};
    Duration heartbeat{};
    Endpoint listen{};
  };
  // Listens and starts the thread. The address is taken when this returns.
  static Result<std::unique_ptr<Coordinator>> start(Options options);
  // Sends what is still to be sent (for a moment, not for ever) and closes all connections.
  ~Coordinator();

  // With the real port. Any thread, like everything below.
  const Endpoint& address() const { return address_; }
  const std::string& job_id() const { return job_.id; }
  // A launcher's word that the rank's process has ended without having said good-bye, be it that it
  // never joined.
  void lose(Rank rank, std::string reason);
  // Waits until every rank that joined has left or died (stalled ones don't count); false when the
  // deadline came first.
  bool wait_until_empty(TimePoint deadline);
  int active() const { return active_.load(std::memory_order_relaxed); }

 private:
  struct Connection;

  Coordinator(Options options, Fd listener, Fd wake);
  void run();
  void wait_for_events();
  void accept_strangers();
  void serve(Connection& connection);
  Status handle(Connection& connection, const Message& message);
  void let_in(Connection& connection, const Message& welcome);
  void refuse(Connection& connection, const Status& why);
  void drop(Connection& connection, const Status& why);
  void send(Rank to, const Message& message);
  void remove_dropped();
  void run_posted();
  void post(std::function<void()> action);
  void finish_writing();
  std::size_t strangers() const;
  TimePoint next_event(TimePoint now) const;

  // Set before the thread starts, constant from then on.
  Doorkeeper::Job job_;
  Endpoint address_;
  Fd listener_;
  Fd wake_;

  // Of the thread.
  SteadyClock clock_;
  JobLedger ledger_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> members_;  // by rank; null: not connected
  bool is_stopping_ = false;
  TimePoint accept_again_{};  // after the process ran out of descriptors

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // under mutex_
  std::condition_variable emptier_;
  std::atomic<int> active_{0};
  std::thread thread_;
};

}  // namespace dunlin::bootstrap
