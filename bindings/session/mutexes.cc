#include "bindings/session/mutexes.h"

#include <fmt/format.h>

#include <utility>

#include "bindings/session/agreement.h"

namespace dunlin::binding {

using collective::DistributedMutex;
using collective::LockOutcome;
using transport::Awaited;
using transport::Fabric;

class Mutex::Body final : public Resident {
 public:
  Body(Fabric& fabric, std::unique_ptr<DistributedMutex> mutex)
      : Resident(fabric), mutex_(std::move(mutex)) {}

  void progress() override {
    if (!mutex_ || !is_connected_) return;
    // Errors are returned by its calls.
    (void)mutex_->progress();
  }
  bool is_served() const override { return mutex_ && is_connected_ && mutex_->needs_progress(); }
  void close() override { mutex_.reset(); }
  // A mutex outlasts its members for the same reason as a window (windows.cc).
  bool outlasts_members() const override { return true; }
  DistributedMutex* get() const { return mutex_.get(); }  // null: closed
  Status connect() {
    DUNLIN_TRY(mutex_->connect());
    is_connected_ = true;
    return Status::ok();
  }

 private:
  std::unique_ptr<DistributedMutex> mutex_;
  bool is_connected_ = false;
};

class Mutex::Lock final : public ResidentOperation {
 public:
  explicit Lock(std::shared_ptr<Body> body) : ResidentOperation(body), body_(std::move(body)) {}

  Status test() override {
    if (is_over()) return outcome();
    if (body_->get() == nullptr) return closed();
    if (!is_started_) DUNLIN_TRY(body_->get()->start());
    is_started_ = true;
    DUNLIN_ASSIGN(lock_, body_->get()->test());
    return Status::ok();
  }
  LockOutcome lock() const { return lock_; }
  // Ends the operation, and withdraws the request for the lock, or unlocks if it was granted.
  void cancel(const Status& why) {
    if (!is_over()) finish(why);
    if (!is_started_ || body_->get() == nullptr) return;
    (void)body_->get()->cancel();
  }

 protected:
  std::vector<Awaited> awaited() const override {
    return body_->get() == nullptr ? std::vector<Awaited>() : body_->get()->awaited();
  }

 private:
  std::shared_ptr<Body> body_;
  bool is_started_ = false;
  LockOutcome lock_ = LockOutcome::kLocked;
};

class Mutex::Unlock final : public ResidentOperation {
 public:
  explicit Unlock(std::shared_ptr<Body> body) : ResidentOperation(body), body_(std::move(body)) {}

  Status start() {
    if (body_->get() == nullptr) return closed();
    return body_->get()->start_unlock();
  }
  Status test() override {
    if (is_over()) return outcome();
    return body_->get() == nullptr ? closed() : body_->get()->test_unlock();
  }

 protected:
  std::vector<Awaited> awaited() const override {
    return body_->get() == nullptr ? std::vector<Awaited>() : body_->get()->awaited();
  }

 private:
  std::shared_ptr<Body> body_;
};

template <typename Use>
Status Mutex::with_body(Use&& use) {
  return session_.with_fabric([&](Fabric&) -> Status {
    if (body_->get() == nullptr)
      return {Code::kClosed, fmt::format("the mutex '{}' was freed", name_)};
    return use(*body_);
  });
}

Result<std::shared_ptr<Mutex>> Mutex::create(Session& session, std::string name, Rank owner_rank,
                                             const Session::Interrupt& interrupt) {
  Plan plan{std::move(name), owner_rank, {}};
  for (int rank = 0; rank < session.job().size; ++rank) plan.members.emplace_back(rank);
  const std::string what = fmt::format("the mutex '{}'", plan.name);
  const std::string alike = fmt::format("{} {}", owner_rank.value(), plan.name);
  DUNLIN_ASSIGN(const Set set, create(session, what, alike, {std::move(plan)}, interrupt));
  return set.front();
}

Result<Mutex::Set> Mutex::create(Session& session, std::string_view name,
                                 const std::vector<Plan>& plans,
                                 const Session::Interrupt& interrupt) {
  return create(session, fmt::format("the mutexes '{}'", name), name, plans, interrupt);
}

Result<Mutex::Set> Mutex::create(Session& session, std::string_view what, std::string_view alike,
                                 const std::vector<Plan>& plans,
                                 const Session::Interrupt& interrupt) {
  DUNLIN_TRY(session.check_fixed(what));
  const std::string making = fmt::format("making {}", what);
  const std::uint64_t epoch = session.next_number();
  Set set;
  Status status;
  for (std::size_t i = 0; i < plans.size() && status.is_ok(); ++i) {
    set.push_back(std::shared_ptr<Mutex>(new Mutex(session, plans[i].name)));
    status = set.back()->prepare(plans[i], epoch);
  }
  // After this agreement all ranks are prepared, so that connect() doesn't wait.
  status = agree(session, std::move(status), making, alike, interrupt);
  if (status.is_ok()) {
    for (const auto& mutex : set) {
      if (!status.is_ok()) break;
      status = mutex->with_body([](Body& body) { return body.connect(); });
    }
    status = agree(session, std::move(status), making, {}, interrupt);
  }
  if (status.is_ok()) return set;
  for (const auto& mutex : set) {
    if (mutex->body_) session.detach(*mutex->body_);
  }
  return status;
}

Status Mutex::prepare(const Plan& plan, std::uint64_t epoch) {
  collective::MutexOptions options;
  options.name = plan.name;
  options.owner_rank = plan.owner_rank;
  options.membership = {epoch, plan.members};
  return session_.attach([&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
    DUNLIN_ASSIGN(auto mutex, DistributedMutex::prepare(fabric, options));
    body_ = std::make_shared<Body>(fabric, std::move(mutex));
    return std::shared_ptr<Resident>(body_);
  });
}

Status Mutex::check_free() {
  return with_body([&](Body& body) -> Status {
    if (!body.get()->is_held()) return Status::ok();
    return {Code::kInvalidArgument, fmt::format("the mutex '{}' is held", name_)};
  });
}

Status Mutex::free(const Session::Interrupt& interrupt) {
  Status own = check_free();
  if (own.code() == Code::kClosed) return own;
  Status status =
      agree(session_, std::move(own), fmt::format("freeing the mutex '{}'", name_), {}, interrupt);
  if (status.is_ok() || status.code() == Code::kPeerDead) session_.detach(*body_);
  return status;
}

Status Mutex::free(Session& session, std::string_view name, const Set& set,
                   const Session::Interrupt& interrupt) {
  Status own;
  for (const auto& mutex : set) {
    if (own.is_ok()) own = mutex->check_free();
  }
  if (own.code() == Code::kClosed) return own;
  Status status =
      agree(session, std::move(own), fmt::format("freeing the mutexes '{}'", name), {}, interrupt);
  if (!status.is_ok() && status.code() != Code::kPeerDead) return status;
  for (const auto& mutex : set) session.detach(*mutex->body_);
  return status;
}

Result<LockOutcome> Mutex::lock(Duration timeout, const Session::Interrupt& interrupt) {
  DUNLIN_TRY(with_body([](Body&) { return Status::ok(); }));
  const auto lock = std::make_shared<Lock>(body_);
  std::shared_ptr<SessionOperation> unfinished;
  const auto make = [&](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    return std::shared_ptr<SessionOperation>(lock);
  };
  Status status = session_.run(make, timeout, interrupt, &unfinished);
  if (status.is_ok()) return lock->lock();
  if (unfinished) {
    (void)session_.with_fabric([&](Fabric&) {
      lock->cancel(status);
      return Status::ok();
    });
    session_.abandon(unfinished, status);
  }
  return status;
}

Status Mutex::unlock(const Session::Interrupt& interrupt) {
  DUNLIN_TRY(with_body([](Body&) { return Status::ok(); }));
  std::shared_ptr<SessionOperation> unfinished;
  const auto make = [&](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto unlock = std::make_shared<Unlock>(body_);
    DUNLIN_TRY(unlock->start());
    return std::shared_ptr<SessionOperation>(std::move(unlock));
  };
  Status status = session_.run(make, session_.config().deadline, interrupt, &unfinished);
  if (unfinished) session_.abandon(unfinished, status);
  return status;
}

}  // namespace dunlin::binding
