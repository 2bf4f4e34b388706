#include "collectives/bindings/c10d/engine.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "collectives/bindings/c10d/open_futures.h"
#include "collectives/bindings/shared_runtime.h"

namespace dunlin::torch_backend {

using binding::SharedRuntime;

namespace {

// PyTorch makes groups through a function that gets nothing of ours: hence global.
struct Place {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;
  // Outlives the engine: an exchange has its name once in a job.
  std::shared_ptr<Messages> messages;
  int forming = 0;  // threads that form groups
  std::condition_variable formed;
  std::uint64_t leaves = 0;  // so far: whoever forms a group meanwhile gives up
};

// Never destroyed; another one after fork(), as in shared_runtime.cc.
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
    return {Code::kClosed, "Dunlin was shut down while a group was formed"};
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
  if (engine && engine->runtime == membership.runtime) {
    // One entry is enough.
    DUNLIN_TRY(SharedRuntime::leave(membership.runtime, binding::Ending::kAlone, Duration::zero()));
    return engine;
  }
  if (!here.messages || here.messages->runtime() != membership.runtime) {
    auto messages = Messages::create(membership.runtime);
    if (!messages) {
      (void)SharedRuntime::leave(membership.runtime, binding::Ending::kAlone, Duration::zero());
      return std::move(messages).status();
    }
    here.messages = std::move(messages).value();
  }
  // Whoever waits for a future alone moves nothing on.
  membership.runtime->serve_in_background();
  engine = std::make_shared<Engine>(
      Engine{membership.runtime, std::make_shared<Finisher>(), here.messages});
  return engine;
}

Status Engine::leave(binding::Ending ending, Duration patience) {
  std::shared_ptr<Engine> engine;
  {
    Place& here = *place();
    std::unique_lock guard(here.mutex);
    if (here.engine && here.engine->finisher->is_own_thread())
      return {Code::kInvalidArgument, "shutdown() from within a future's callback"};
    ++here.leaves;
    // They have entered the runtime as well.
    here.formed.wait_for(guard, patience, [&] { return here.forming == 0; });
    engine = std::exchange(here.engine, nullptr);
  }
  if (!engine) return Status::ok();
  Status status = SharedRuntime::leave(engine->runtime, ending, patience);
  if (status.code() == Code::kInvalidArgument) {
    // Refused: all goes on.
    const std::lock_guard guard(place()->mutex);
    place()->engine = std::move(engine);
    return status;
  }
  engine->finisher->stop();
  return status;
}

void Engine::forget() {
  // Neither destroyed nor used: its threads are the parent's.
  place() = new Place;
  SharedRuntime::forget();
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
  if (process_.is_here()) engine_->runtime->retire(communicator_);
}

}  // namespace dunlin::torch_backend
