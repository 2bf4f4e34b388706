#include "bindings/c10d/engine.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "bindings/c10d/open_futures.h"
#include "bindings/session/shared_session.h"

namespace dunlin::torch_backend {

using binding::SharedSession;

namespace {

// Global, as PyTorch makes groups through a function to which nothing can be handed.
struct Place {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;
  // Outlives the engine, as a job can have only one exchange of a name.
  std::shared_ptr<Messages> messages;
  int forming = 0;  // threads that form groups
  std::condition_variable formed;
  std::uint64_t leaves =
      0;  // calls of leave() so far: a thread that forms a group meanwhile gives up
};

// Never destroyed, and a new one after fork(), as in shared_session.cc.
Place*& place() {
  static Place* known = new Place;
  return known;
}

// The scope in which a thread forms a group.
class Forming {
 public:
  Forming() : place_(*place()) {
    const std::lock_guard guard(place_.mutex);
    ++place_.forming;
    leaves_ = place_.leaves;
  }
  ~Forming() {
    const std::lock_guard guard(place_.mutex);
    --place_.forming;
    place_.formed.notify_all();
  }
  Forming(const Forming&) = delete;
  Forming& operator=(const Forming&) = delete;
  Status check() const {
    const std::lock_guard guard(place_.mutex);
    if (place_.leaves == leaves_) return Status::ok();
    return {Code::kClosed, "Dunlin was shut down while a group was being formed"};
  }

 private:
  Place& place_;
  std::uint64_t leaves_ = 0;
};

}  // namespace

Result<std::shared_ptr<Engine>> Engine::of(const Membership& membership) {
  Place& here = *place();
  const std::lock_guard guard(here.mutex);
  std::shared_ptr<Engine>& engine = here.engine;
  if (engine && engine->session == membership.session) {
    // One SharedSession::enter() is enough.
    DUNLIN_TRY(SharedSession::leave(membership.session, binding::Ending::kAlone, Duration::zero()));
    return engine;
  }
  if (!here.messages || here.messages->session() != membership.session) {
    auto messages = Messages::create(membership.session);
    if (!messages) {
      (void)SharedSession::leave(membership.session, binding::Ending::kAlone, Duration::zero());
      return std::move(messages).status();
    }
    here.messages = std::move(messages).value();
  }
  // A thread that only waits for a future advances nothing.
  Status status = membership.session->serve_in_background();
  auto finisher = status.is_ok() ? Finisher::start() : std::move(status);
  if (!finisher) {
    (void)SharedSession::leave(membership.session, binding::Ending::kAlone, Duration::zero());
    return std::move(finisher).status();
  }
  engine =
      std::make_shared<Engine>(Engine{membership.session, std::move(*finisher), here.messages});
  return engine;
}

Status Engine::leave(binding::Ending ending, Duration timeout) {
  std::shared_ptr<Engine> engine;
  {
    Place& here = *place();
    std::unique_lock guard(here.mutex);
    if (here.engine && here.engine->finisher->is_own_thread())
      return {Code::kInvalidArgument, "shutdown() was called by a callback of a future"};
    ++here.leaves;
    // Threads that form groups have entered the session as well.
    here.formed.wait_for(guard, timeout, [&] { return here.forming == 0; });
    engine = std::exchange(here.engine, nullptr);
  }
  if (!engine) return Status::ok();
  Status status = SharedSession::leave(engine->session, ending, timeout);
  if (status.code() == Code::kInvalidArgument) {
    // The shutdown was refused: everything continues.
    const std::lock_guard guard(place()->mutex);
    place()->engine = std::move(engine);
    return status;
  }
  engine->finisher->stop();
  return status;
}

void Engine::forget() {
  // The old one is neither destroyed nor used, as its threads belong to the parent.
  place() = new Place;
  SharedSession::forget();
  fail_inherited_futures();
}

Result<std::shared_ptr<Member>> Member::meet(KeyValueStore store, GroupPlace place) {
  const Forming forming;
  store.interrupt = [&forming, before = std::move(store.interrupt)]() -> Status {
    DUNLIN_TRY(forming.check());
    return before ? before() : Status::ok();
  };
  DUNLIN_ASSIGN(Membership membership, torch_backend::meet(store, place));
  DUNLIN_ASSIGN(auto engine, Engine::of(membership));
  return std::shared_ptr<Member>(new Member(std::move(engine), std::move(membership)));
}

Member::Member(std::shared_ptr<Engine> engine, Membership membership)
    : engine_(std::move(engine)),
      communicator_(std::move(membership.communicator)),
      ranks_(std::move(membership.ranks)),
      name_(std::move(membership.name)) {}

Member::~Member() {
  // A child of fork() has the object, but none of the threads.
  if (process_.is_here()) engine_->session->release_later(communicator_);
}

}  // namespace dunlin::torch_backend
