// Listener: accepts connections, and hands on those whose other end has proved that it belongs to
// the job. Until then a connection is a guest: nothing of what it sends is taken for a message, the
// number of guests and their time are limited, and refusals are logged rarely. Strangers cannot
// keep members out by their number, because guests that have not greeted give way. Owner thread
// only.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/clock.h"
#include "transports/tcp/address.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/poller.h"

namespace dunlin::transport::tcp {

// A connection whose other end has proved what it is.
struct Admitted {
  Fd socket;
  Purpose purpose;
  SessionKeys keys;
};

class Listener {
 public:
  struct Options {
    Credentials credentials;
    Rank self;
    int job_size;
    std::uint64_t token;
  };
  // Returns an error if the connection cannot be used.
  using OnAdmitted = std::function<Status(Admitted admitted)>;

  // The poller and the clock must outlive the listener.
  Listener(const Options& options, Poller& poller, const Clock& clock, OnAdmitted on_admitted);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Listens at each of the places where it does not listen yet. Their ports are ignored. An error
  // means that it listens at none of them.
  Status listen_at(const std::vector<Endpoint>& places);
  // Where it listens.
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  bool has_guests() const { return !silent_.empty() || !greeted_.empty(); }
  // Ends the guests whose time is over, and logs what was refused. Called after each poll.
  void settle();

 private:
  class Port;
  class Guest;

  Status open_port(Endpoint place);
  void accept_all(int socket);
  void take_in(Fd socket, const Endpoint& from);
  void drop_oldest();
  void refuse(const Endpoint& from, const Status& why);
  void log_refusals(TimePoint now);

  const Options options_;
  Poller& poller_;
  const Clock& clock_;
  const OnAdmitted on_admitted_;
  std::vector<Endpoint> endpoints_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::list<Guest> silent_;                     // guests that have not greeted, the oldest first
  std::list<Guest> greeted_;                    // the others
  std::unordered_set<std::uint64_t> answered_;  // the beginnings of the greetings' proofs
  std::uint64_t refused_ = 0;                   // since the last line in the log
  std::string last_refusal_;
  TimePoint logged_at_{};
};

}  // namespace dunlin::transport::tcp
