// BootstrapClient: the calling rank's side of the bootstrap, independent of how messages travel.
//
// It turns calls into requests, waits for the replies, and updates the peer table from notices. A
// subclass transmits the messages: over TCP with a monitor thread, or by direct calls of a ledger
// in the same process.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/step_boundary.h"
#include "runtime/bootstrap/wire.h"

namespace dunlin::bootstrap {

class BootstrapClient : public Bootstrap {
 public:
  const JobInfo& job() const final { return job_; }
  PeerTable& peers() final { return peers_; }
  Mail& mail() final { return mail_; }
  Fences& fences() final { return fences_; }
  const JobKey& key() const final { return key_; }
  Status publish(std::string_view key, std::span<const std::byte> value) final;
  Status post(std::string_view key, std::span<const std::byte> value) final;
  void release(std::string_view topic, std::size_t users) final;
  Result<Bytes> lookup_from(Rank publisher, std::string_view key, Duration timeout) final;
  Result<std::vector<Bytes>> lookup_each(std::string_view topic, std::span<const Rank> publishers,
                                         Duration timeout) final;
  Status contribute(std::string_view name, std::span<const Rank> group,
                    std::span<const std::byte> record) final;
  Result<Bytes> gather(std::string_view name, std::span<const Rank> group,
                       std::span<const std::byte> record, Duration timeout) final;
  Status barrier(std::string_view name, Duration timeout) final;
  int add_chore(std::function<void()> chore) final;
  void remove_chore(int chore) final { chores_.erase(chore); }
  Result<Membership> reform(Duration timeout) final;
  Membership membership() const final;
  Result<bool> changes_before(std::uint64_t step, Duration timeout) final;
  bool is_change_wanted() const final;
  Status retire() final;

 protected:
  BootstrapClient(JobInfo job, const JobKey& key);

  // Waits until all ranks have joined.
  Status start(Duration timeout);
  // Sets local_rank and local_size by finding the ranks that run under the same kernel. All ranks
  // call it, before any use of the two numbers.
  Status count_local(Duration timeout);
  // Tells the coordinator that this rank leaves. Waits until it has told the others, the connection
  // is given up, or the timeout has passed.
  void announce_leave(Duration timeout) noexcept;

  // Handles a message from the coordinator. Any thread.
  void deliver(Message message);
  // From now on all calls, outstanding ones too, fail with `why`. Any thread.
  void disconnect(Status why);
  // The same, and this rank may no longer act as a member of the job. Any thread.
  void cut_off(const Status& why);

  // Passes a message to the coordinator without waiting. Any thread; also from within deliver().
  virtual void transmit(const Message& message) = 0;
  // Called when the deadline of a request has passed, as a last chance to obtain the answer.
  virtual void on_deadline() {}

 private:
  bool exists(Rank rank) const { return rank.value() >= 0 && rank.value() < job_.size; }
  Status check_publisher(std::string_view key, Rank publisher) const;
  // Checks the arguments of a gather.
  Result<Message> gather_message(std::string_view name, std::span<const Rank> group,
                                 std::span<const std::byte> record) const;
  // For a message that asks for no answer.
  Status send_unanswered(const Message& message);
  // The error of a lookup or gather that waited for a rank that is gone tells what has become of
  // it.
  Status explain(Status error) const;
  Result<Message> request(Message message, Duration timeout);
  // Waits until `is_over`, doing chores. Returns false when that is not so by `until`. `lock` holds
  // mutex_, and is released meanwhile.
  template <typename IsOver>
  bool await(std::unique_lock<std::mutex>& lock, TimePoint until, IsOver is_over);
  bool await_reply(std::unique_lock<std::mutex>& lock, TimePoint until);
  // Tells the coordinator which step this rank does not begin before it knows the boundary.
  void promise(std::uint64_t epoch, std::uint64_t step);
  // A member of the epoch that has died; Rank(): none. mutex_ is held.
  Rank dead_member() const;
  void on_notice(Message& notice);

  JobInfo job_;                                  // constant once the job has started
  std::map<int, std::function<void()>> chores_;  // of the thread that calls the bootstrap
  int last_chore_ = 0;
  Duration chore_interval_{};
  bool does_chores_ = false;
  PeerTable peers_;
  Mail mail_;
  Fences fences_;
  const JobKey key_;
  SteadyClock clock_;

  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable answered_;
  std::uint64_t last_request_ = 0;
  std::optional<Message> reply_;  // to last_request_
  bool has_mail_ = false;         // since the chores have run last
  std::optional<Status> disconnected_;
  Membership membership_;
  StepBoundary boundary_;
};

}  // namespace dunlin::bootstrap
