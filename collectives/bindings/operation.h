// Operation and Resident: what the runtime (runtime.h) moves on, and what lives in its fabric.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/expiry.h"
#include "transports/fabric.h"

namespace dunlin::binding {

struct CommunicatorSlot;

inline Status closed() {
  return {Code::kClosed, "Dunlin was shut down"};
}

using collective::is_expiry;

// Something under way that the runtime moves on. Kinds of operations derive from it. All but
// is_over() under the runtime's lock.
class Operation {
 public:
  virtual ~Operation() = default;
  // Moves it on; kBusy until it is over. Of a resident's: after its progress().
  virtual Status test() = 0;
  // As Communicator::wait(), which says what `pause` is for.
  virtual Status wait(Duration timeout, const std::function<Status()>& pause) = 0;
  // What has to be over before the communicator, or memory of it, goes.
  virtual bool uses(const CommunicatorSlot& communicator) const = 0;

  // The operation has released its memory, with or without success. Any thread.
  bool is_over() const { return is_over_.load(std::memory_order_acquire); }
  const Status& outcome() const { return outcome_; }  // once it is over
  void finish(Status outcome) {
    let_go();
    outcome_ = std::move(outcome);
    is_over_.store(true, std::memory_order_release);  // pairs with is_over()
    if (const auto call = std::exchange(when_over_, {})) call();
  }
  // Ends it with `why`, if it isn't over and only takes something in: nobody else waits for it.
  virtual void withdraw(const Status& why) {}
  // `call` is called once, by the thread that finds it over: under the runtime's lock, hence it is
  // short and calls nothing of the runtime. Before the operation is handed to the runtime.
  void when_over(std::function<void()> call) { when_over_ = std::move(call); }
  // Ended, one way or another, if this is what a test() or wait() of it has returned.
  void settle(const Status& status) {
    if (!is_over() && !status.is_busy() && !is_expiry(status)) finish(status);
  }
  // Keeps what it uses for as long as it is there.
  void hold(std::shared_ptr<void> memory) { memory_.push_back(std::move(memory)); }

 protected:
  // What it still has in what it is an operation of, which may have closed, has to go: the end may
  // not be one that a test() has found.
  virtual void let_go() {}

 private:
  Status outcome_;
  std::atomic<bool> is_over_{false};
  std::function<void()> when_over_;
  std::vector<std::shared_ptr<void>> memory_;
};

// Something that lives in the fabric besides communicators, and goes before it: an exchange, a
// window, a mutex. Under the runtime's lock.
class Resident {
 public:
  explicit Resident(transport::Fabric& fabric) : fabric_(fabric) {}
  virtual ~Resident() = default;
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  virtual void progress() = 0;
  // Whether others need its progress() though nobody here waits for anything.
  virtual bool is_served() const = 0;
  // Gives up everything that is of the fabric, which is about to go.
  virtual void close() = 0;
  transport::Fabric& fabric() { return fabric_; }

 private:
  transport::Fabric& fabric_;
};

// An operation of a resident.
class ResidentOperation : public Operation {
 public:
  explicit ResidentOperation(std::shared_ptr<Resident> resident) : resident_(std::move(resident)) {}

  Status wait(Duration timeout, const std::function<Status()>& pause) final {
    // Another thread may see its end during the pause.
    const auto look = [&]() -> Status {
      if (is_over()) return outcome();
      resident_->progress();
      return test();
    };
    const auto step = [&]() -> Status {
      if (Status status = look(); !status.is_busy() || !pause) return status;
      DUNLIN_TRY(pause());
      return look();
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
      const Duration left = std::max(until - fabric.clock().now(), Duration::zero());
      Status status = fabric.wait(
          judge, [this] { return awaited(); }, left);
      if (is_own || status.code() != Code::kPeerDead || !judges_losses()) return status;
    }
  }
  bool uses(const CommunicatorSlot& communicator) const final { return false; }

 protected:
  // Whether its test() ends it where a death does, and nothing else is to.
  virtual bool judges_losses() const { return false; }
  // For whom it waits, of those who are there.
  virtual std::vector<transport::Awaited> awaited() const = 0;

 private:
  std::shared_ptr<Resident> resident_;
};

}  // namespace dunlin::binding
