// SessionOperation: something in progress that the session (session.h) advances.
// Resident: something besides communicators that lives in the session's fabric.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/waiting/expiry.h"
#include "transports/fabric.h"

namespace dunlin::binding {

struct CommunicatorSlot;

inline Status closed() {
  return {Code::kClosed, "Dunlin was shut down"};
}

using collective::is_expiry;

// An operation in progress, which the session advances. Everything but is_over() and outcome()
// needs the session's lock.
class SessionOperation {
 public:
  virtual ~SessionOperation() = default;
  // Advances the operation; kBusy until it is over. The caller has called the resident's progress()
  // before, if it is an operation of a resident.
  virtual Status test() = 0;
  // Does what Communicator::wait() does, which documents `pause`.
  virtual Status wait(Duration timeout, const std::function<Status()>& pause) = 0;
  // Whether it has to be over before the communicator, or memory of it, is released.
  virtual bool uses(const CommunicatorSlot& communicator) const = 0;

  // Whether the operation has ended, with or without success, and uses no memory any more. Any
  // thread.
  bool is_over() const { return is_over_.load(std::memory_order_acquire); }
  const Status& outcome() const { return outcome_; }  // once it is over
  void finish(Status outcome) {
    detach();
    outcome_ = std::move(outcome);
    is_over_.store(true, std::memory_order_release);  // pairs with is_over()
    if (const auto call = std::exchange(when_over_, {})) call();
  }
  // Ends it with `why` if it only receives, so that no other rank waits for it. Does nothing if it
  // is over.
  virtual void withdraw(const Status& why) {}
  // Sets a function that the thread which finds the operation over calls once. It runs under the
  // session's lock, so it has to be short and must not call the session. Set it before the
  // operation is handed to the session.
  void when_over(std::function<void()> call) { when_over_ = std::move(call); }
  // Ends the operation if `status`, which its test() or wait() has returned, is final.
  void settle(const Status& status) {
    if (!is_over() && !status.is_busy() && !is_expiry(status)) finish(status);
  }
  // Keeps the memory for as long as the operation exists.
  void hold(std::shared_ptr<void> memory) { memory_.push_back(std::move(memory)); }

 protected:
  // Withdraws the operation from the communicator or resident, which may be closed: finish() may
  // come before a test() has found an end.
  virtual void detach() {}

 private:
  Status outcome_;
  std::atomic<bool> is_over_{false};
  std::function<void()> when_over_;
  std::vector<std::shared_ptr<void>> memory_;
};

// Something that lives in the fabric, and is closed before it: an exchange, a window, a mutex. All
// calls need the session's lock.
class Resident {
 public:
  explicit Resident(transport::Fabric& fabric) : fabric_(fabric) {}
  virtual ~Resident() = default;
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  virtual void progress() = 0;
  // Whether peers need its progress() while no operation is in progress here.
  virtual bool is_served() const = 0;
  // Releases everything that belongs to the fabric, which is about to be destroyed.
  virtual void close() = 0;
  // The members of the job are about to change (Session::reform): others need not wait for it.
  virtual void leave() {}
  // Whether it is still of use with other members. If not, it is closed when they have changed.
  virtual bool outlasts_members() const { return false; }
  transport::Fabric& fabric() const { return fabric_; }

 private:
  transport::Fabric& fabric_;
};

// An operation of a resident.
class ResidentOperation : public SessionOperation {
 public:
  explicit ResidentOperation(std::shared_ptr<Resident> resident) : resident_(std::move(resident)) {}

  Status wait(Duration timeout, const std::function<Status()>& pause) final {
    // Another thread may find its end during the pause.
    const auto check = [&]() -> Status {
      if (is_over()) return outcome();
      resident_->progress();
      return test();
    };
    const auto step = [&]() -> Status {
      if (Status status = check(); !status.is_busy() || !pause) return status;
      DUNLIN_TRY(pause());
      return check();
    };
    transport::Fabric& fabric = resident_->fabric();
    const TimePoint until = fabric.clock().now() + timeout;
    for (;;) {
      bool is_own = false;
      const auto judge = [&]() -> Status {
        Status status = step();
        is_own = !status.is_busy();
        return status;
      };
      Status status = fabric.wait(
          judge, [this] { return awaited(); }, fabric.remaining(until));
      if (is_own || status.code() != Code::kPeerDead || !handles_deaths()) return status;
    }
  }
  bool uses(const CommunicatorSlot&) const override { return false; }

 protected:
  // Whether test() alone decides if a death ends the operation, so that wait() doesn't.
  virtual bool handles_deaths() const { return false; }
  // The living peers that it waits for.
  virtual std::vector<transport::Awaited> awaited() const = 0;

 private:
  std::shared_ptr<Resident> resident_;
};

}  // namespace dunlin::binding
