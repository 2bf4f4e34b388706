#include "collectives/bindings/c10d/engine.h"

#include <unistd.h>

#include <mutex>

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
};

// Never destroyed; another one after fork(), as in shared_runtime.cc.
Place*& place() {
  static Place* known = new Place;
  return known;
}

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
    const std::lock_guard guard(place()->mutex);
    engine = std::exchange(place()->engine, nullptr);
  }
  if (!engine) return Status::ok();
  Status status = engine->finisher->is_own_thread()
                      ? Status(Code::kInvalidArgument, "shutdown() from within a future's callback")
                      : SharedRuntime::leave(engine->runtime, ending, patience);
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
}

Result<std::shared_ptr<Member>> Member::meet(const KeyValueStore& store, GroupPlace place) {
  DUNLIN_ASSIGN(Membership membership, torch_backend::meet(store, place));
  DUNLIN_ASSIGN(auto engine, Engine::of(membership));
  return std::shared_ptr<Member>(new Member(std::move(engine), std::move(membership)));
}

Member::Member(std::shared_ptr<Engine> engine, Membership membership)
    : engine_(std::move(engine)),
      communicator_(std::move(membership.communicator)),
      ranks_(std::move(membership.ranks)),
      name_(std::move(membership.name)),
      process_(getpid()) {}

Status Member::check_process() const {
  if (getpid() == process_) return Status::ok();
  return {Code::kClosed, "the group is the parent's: after fork(), make a new one"};
}

Member::~Member() {
  // A child of fork() has the object, but none of the threads.
  if (getpid() == process_) engine_->runtime->retire(communicator_);
}

}  // namespace dunlin::torch_backend
