// Contact: a rank's connection to the coordinator, which outlives the sockets that carry it.
//
// When a socket fails or falls silent, Contact connects again and resumes the session. It ends when
// the coordinator is gone for certain, or when this rank has been out of reach for so long that the
// others may soon count it as dead (README, "Deaths and outages"). The monitor thread owns it.
#pragma once

#include <poll.h>

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/bootstrap/coordinator_search.h"
#include "runtime/bootstrap/net.h"
#include "runtime/bootstrap/session.h"

namespace dunlin::bootstrap {

class Contact {
 public:
  using Deliver = std::function<void(Message)>;
  // `plan` must outlive this object. `deliver` gets what arrives. `wake` interrupts the poll() of
  // the owner; another thread calls it.
  Contact(const JoinPlan& plan, AuthenticatedSocket connection, Deliver deliver,
          std::function<void()> wake);
  // Waits for an attempt to connect, for kAttemptTime for each address at most.
  ~Contact();
  Contact(const Contact&) = delete;
  Contact& operator=(const Contact&) = delete;

  // Takes a message, and sends it now or after an outage. After the end, it is dropped. A kCancel
  // takes back the request that it names, as far as that has not been sent.
  void send(const Message& message);
  // Does all that is due: input, output, heartbeats, a new connection.
  void turn(TimePoint now);
  // Appends entries for poll(): the number is the same until the next turn(). It need not look at
  // the results.
  void append_to(std::vector<pollfd>& entries) const;
  // When turn() is due even if nothing arrives.
  TimePoint next() const;

  struct End {
    Status why;
    // The others may count this rank as dead. Otherwise the coordinator is gone, for all ranks.
    bool is_cut_off = false;
  };
  // Set when no connection will be made any more.
  const std::optional<End>& end() const { return end_; }

 private:
  Status exchange(TimePoint now);
  Status receive(Message message, TimePoint now);
  Status pass_kept();
  Status beat(bool asks, TimePoint now);
  void lose(const Status& why, TimePoint now);
  void seek(TimePoint now);
  // The outcome of an attempt that has ended, once.
  std::optional<ReturnAttempt> end_of_attempt();
  void take_attempt(TimePoint now);
  // Ends a connection that an attempt has made after the end.
  void drop_attempt();
  void count_attempt(TimePoint now);
  void resume(AuthenticatedSocket connection, TimePoint now);
  void judge(TimePoint now);
  bool has_tried(TimePoint now) const;
  bool is_coordinator_ended() const;

  const JoinPlan& plan_;
  const Deliver deliver_;
  const std::function<void()> wake_;
  const Duration heartbeat_;
  const Duration silence_;  // after which a connection counts as failed
  const Duration lease_;    // how long this rank may be out of contact
  const Nonce key_;
  ProcessWatch coordinator_;

  FrameSocket socket_;
  Session session_;
  std::size_t passed_ = 0;  // of the kept messages, those that socket_ has taken
  std::uint64_t beats_ = 0;
  std::deque<std::pair<std::uint64_t, TimePoint>> asked_;  // heartbeats that are to be answered
  TimePoint next_beat_{};
  TimePoint last_turn_;
  TimePoint heard_;    // anything
  TimePoint contact_;  // when the last heartbeat that was answered was sent

  // While there is no connection:
  std::string lost_how_;
  TimePoint lost_at_{};
  bool was_closed_ = false;  // by the other side, with a FIN
  bool is_refused_ = false;  // the last attempt was
  int attempts_ = 0;         // that have ended
  TimePoint next_attempt_{};
  TimePoint attempt_began_{};
  std::thread seeker_;
  std::mutex mutex_;
  std::optional<ReturnAttempt> attempt_;  // its outcome, under mutex_

  std::optional<End> end_;
};

}  // namespace dunlin::bootstrap
