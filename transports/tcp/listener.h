// Listener: accepts connections, and hands on those whose other end has proved that it belongs to
// the job. Until then a connection is a guest: nothing of what it sends is taken for a message,
// there is a limit on the guests' number and on their time, and what is refused is logged rarely.
// Owner thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
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
    std::string interface;  // the one to listen on; empty: all
  };
  // Returns an error if the connection cannot be used.
  using OnAdmitted = std::function<Status(Admitted admitted)>;

  // Listens at once. The poller and the clock must outlive the listener.
  static Result<std::unique_ptr<Listener>> create(const Options& options, Poller& poller,
                                                  const Clock& clock, OnAdmitted on_admitted);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  bool has_guests() const { return !guests_.empty(); }
  // Ends the guests whose time is over, and logs what was refused. Called after each poll.
  void settle();

 private:
  class Port;
  class Guest;

  Listener(const Options& options, Poller& poller, const Clock& clock, OnAdmitted on_admitted);
  Status listen();
  void accept_all(int socket);
  void refuse(const Endpoint& from, const Status& why);
  void log_refusals(TimePoint now);

  const Options options_;
  Poller& poller_;
  const Clock& clock_;
  const OnAdmitted on_admitted_;
  std::vector<Endpoint> endpoints_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::list<Guest> guests_;    // the oldest first
  std::uint64_t refused_ = 0;  // since the last line in the log
  std::string last_refusal_;
  TimePoint logged_at_{};
};

}  // namespace dunlin::transport::tcp
