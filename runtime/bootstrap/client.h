// BootstrapClient: the caller's side of the bootstrap, without a transport.
//
// It turns calls into requests, waits for the replies, and keeps the peer table up to date with the
// notices. How messages travel is its subclass's: TCP with a monitor thread, or direct calls into a
// ledger of the same process.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/wire.h"

namespace dunlin::bootstrap {

class BootstrapClient : public Bootstrap {
 public:
  const JobInfo& job() const final { return job_; }
  PeerTable& peers() final { return peers_; }
  Mail& mail() final { return mail_; }
  Status publish(std::string_view key, std::span<const std::byte> value) final;
  Result<Bytes> lookup(std::string_view key, Duration timeout) final;
  Status barrier(std::string_view name, Duration timeout) final;
  int add_chore(std::function<void()> chore) final;
  void remove_chore(int chore) final { chores_.erase(chore); }
  Result<Membership> reform(Duration timeout) final;
  Membership membership() const final;

 protected:
  explicit BootstrapClient(JobInfo job);

  // Waits until all ranks have joined.
  Status start(Duration timeout);
  // Finds local_rank and local_size: which ranks run under this one's kernel. Collective, and
  // before anybody asks for them.
  Status count_local();
  // Tells the coordinator that this rank ends, and waits a moment for it to have told the others.
  void say_goodbye() noexcept;

  // What arrives from the coordinator. Any thread.
  void deliver(Message message);
  // Nothing will arrive any more: all calls, open ones too, fail with `why`. Any thread.
  void disconnect(Status why);

  // Hands a message to the coordinator without waiting for anything. Caller's thread.
  virtual void transmit(const Message& message) = 0;
  // A request's deadline has come: the last chance to provoke its answer.
  virtual void on_deadline() {}

 private:
  Result<Message> request(Message message, Duration timeout);
  // False when it is not there by then. `lock` holds mutex_ and is given up meanwhile.
  bool await_reply(std::unique_lock<std::mutex>& lock, TimePoint until);

  JobInfo job_;                                  // constant once the job has started
  std::map<int, std::function<void()>> chores_;  // of the thread that makes the calls
  int last_chore_ = 0;
  bool does_chores_ = false;
  PeerTable peers_;
  Mail mail_;
  SteadyClock clock_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable answered_;
  std::uint64_t last_request_ = 0;
  std::optional<Message> reply_;  // to last_request_
  std::optional<Status> disconnected_;
  Membership membership_;
};

}  // namespace dunlin::bootstrap
