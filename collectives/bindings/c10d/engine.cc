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
};

// Never destroyed; another one after fork(), as in shared_runtime.cc.
Place*& place() {
  static Place* known = new Place;
  return known;
}

}  // namespace

Result<std::shared_ptr<Engine>> Engine::of(const Membership& membership) {
  const std::lock_guard guard(place()->mutex);
  std::shared_ptr<Engine>& engine = place()->engine;
  if (engine && engine->runtime == membership.runtime) {
    // One entry is enough.
    DUNLIN_TRY(SharedRuntime::leave(membership.runtime, binding::Ending::kAlone, Duration::zero()));
    return engine;
  }
  auto made = std::make_shared<Engine>();
  made->runtime = membership.runtime;
  made->finisher = std::make_shared<Finisher>();
  DUNLIN_ASSIGN(made->messages, Messages::create(membership.runtime));
  engine = made;
  return made;
}

Status Engine::leave(binding::Ending ending, Duration patience) {
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard guard(place()->mutex);
    engine = std::exchange(place()->engine, nullptr);
  }
  if (!engine) return Status::ok();
  Status status = SharedRuntime::leave(engine->runtime, ending, patience);
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

Member::~Member() {
  // A child of fork() has the object, but none of the threads.
  if (getpid() == process_) engine_->runtime->retire(communicator_);
}

}  // namespace dunlin::torch_backend
