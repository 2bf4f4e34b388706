// WholeJobReduce: the common part of the session's residents that reduce over all of its members.
// One reduce is in progress at a time. Errors are final, since the ranks' data no longer
// match after one. An error that follows from a death becomes kPeerDead, which names the rank.
//
// Members need the session's lock; the functions below take it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/session/operation.h"
#include "bindings/session/session.h"
#include "collectives/waiting/member_watch.h"

namespace dunlin::binding {

class WholeJobReduce : public Resident {
 public:
  class Operation;

  // `members`: the ranks that take part. `title`: what errors call it, "the stochastic reduce 'x'".
  WholeJobReduce(transport::Fabric& fabric, std::vector<Rank> members, std::string title)
      : Resident(fabric),
        members_(std::move(members)),
        watch_(fabric, members_),
        title_(std::move(title)) {}

  void progress() override {}  // tasks of the fabric do it, and the operation in test()
  // Neighbors may be ahead. Transports with connections (tcp) take their data in only while this
  // rank's fabric is progressed.
  bool is_served() const override { return is_open() && !failure_.is_error(); }

  virtual bool is_open() const = 0;
  virtual Status connect() = 0;
  virtual std::vector<transport::Awaited> awaited() const = 0;
  // Whether the reduce in progress may access the caller's memory, as copies on a GPU do. Then a
  // reduce that has failed is not over yet.
  virtual bool uses_memory() { return false; }
  // Ends the reduce in progress, which accesses the object's own memory no longer.
  virtual void stop(const Status& outcome) = 0;
  // Waits until it accesses none, for Config::deadline at most.
  virtual void release_memory() {}

  const std::string& title() const { return title_; }
  bool is_reducing() const { return is_reducing_; }
  // kClosed if it was freed. (The session is open.)
  Status check_open() const;

 private:
  // A notice of a death takes milliseconds on one host and at most a heartbeat between hosts. An
  // error that is not explained by then has another cause.
  static constexpr auto kNoticeTime = std::chrono::milliseconds(500);

  // Begins a reduce by this function.
  Status start(const std::function<Status()>& begin);
  // kBusy, or, once, the outcome. `advance` returns kBusy until the reduce is over.
  Status test(const std::function<Status()>& advance);
  Status outcome_of(const std::function<Status()>& advance);
  // The operation in progress was ended by another error than those of test().
  void give_up();
  Status check_members() {
    return watch_.check([this] { return awaited(); }, began_);
  }
  // kPeerDead if a rank that this one waits for has left the job.
  Status check_awaited();
  // Returns the death that `status` follows from, or that ends the wait. A peer may have closed its
  // connection because of a death, and that may arrive before the notice of it; kBusy meanwhile.
  Status explain(Status status);
  Status keep(Status status) {
    if (status.is_error()) fail(status);
    return status;
  }
  void fail(Status status) {
    failure_ = std::move(status);
    if (is_open()) stop(failure_);
  }

  const std::vector<Rank> members_;
  collective::MemberWatch watch_;
  const std::string title_;
  bool is_reducing_ = false;
  std::uint64_t seen_ = ~std::uint64_t{0};  // version of the peer table at the last check
  bool is_anybody_gone_ = false;
  TimePoint began_{};
  // The outcome of the reduce in progress, once it is known.
  std::optional<Status> outcome_;
  Status failure_;      // of an earlier reduce: no other one is possible
  Status unexplained_;  // an error that a death may have caused
  TimePoint unexplained_since_{};
};

// A reduce in progress.
class WholeJobReduce::Operation final : public ResidentOperation {
 public:
  // `advance`: as in WholeJobReduce::test().
  Operation(std::shared_ptr<WholeJobReduce> reduce, std::function<Status()> advance)
      : ResidentOperation(reduce), reduce_(std::move(reduce)), advance_(std::move(advance)) {}

  // Call it once, before anything else.
  Status begin(const std::function<Status()>& begin) {
    DUNLIN_TRY(reduce_->start(begin));
    is_begun_ = true;
    return Status::ok();
  }
  Status test() override;

 protected:
  void detach() override {
    if (std::exchange(is_begun_, false)) reduce_->give_up();
  }
  std::vector<transport::Awaited> awaited() const override {
    return reduce_->is_open() ? reduce_->awaited() : std::vector<transport::Awaited>();
  }

 private:
  std::shared_ptr<WholeJobReduce> reduce_;
  std::function<Status()> advance_;
  bool is_begun_ = false;  // and not ended by test()
};

// Helpers for those residents.
//
// Calls use(body), which returns a Status. kClosed if it was freed.
template <typename Body, typename Use>
Status with_open(Session& session, Body& body, Use&& use) {
  return session.with_fabric([&](transport::Fabric&) -> Status {
    DUNLIN_TRY(body.check_open());
    return use(body);
  });
}
// Makes an operation, a reduce that `begin` begins and `advance` advances. `name` is put before its
// first error.
Session::Make reduce_maker(std::shared_ptr<WholeJobReduce> reduce, std::string name,
                           std::function<Status()> begin, std::function<Status()> advance);
// Collective over the members: waits until all of them have called it. kInvalidArgument at all of
// them if a reduce is in progress at one. It is freed if this returns ok or kPeerDead.
Status free_together(Session& session, WholeJobReduce& reduce, const Session::Interrupt& interrupt);

}  // namespace dunlin::binding
