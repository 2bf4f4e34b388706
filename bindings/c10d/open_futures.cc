#include "bindings/c10d/open_futures.h"

#include <pthread.h>

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "bindings/c10d/work.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"

namespace dunlin::torch_backend {
namespace {

using Future = c10::ivalue::Future;

struct Open {
  std::mutex mutex;
  std::unordered_map<Future*, Handle<Future>> futures;
};

Open* make_open();

// Global, as code that forks knows nothing of groups. Never destroyed, as threads may use it until
// the process ends. Made when this module is loaded, before any fork().
Open* const open = make_open();

Open* make_open() {
  // The fork holds the mutex, so that the child gets it unlocked and its data in a consistent
  // state.
  pthread_atfork([] { open->mutex.lock(); }, [] { open->mutex.unlock(); },
                 [] { open->mutex.unlock(); });
  return new Open;
}

using Inherited = std::shared_ptr<std::deque<Handle<Future>>>;

void fail_first(const Inherited& inherited);

// Calls it in a thread of its own. Returns whether there is one.
bool fail_in_thread(const Inherited& inherited) {
  auto thread =
      bootstrap::start_service_thread("dunlin-forked", [inherited] { fail_first(inherited); });
  if (!thread) {
    DUNLIN_WARN("futures of a forked child's parent: {}", thread.status().message());
    return false;
  }
  thread->detach();
  return true;
}

// Fails the first one here, and the others in a thread of their own, as callbacks may wait for
// them.
void fail_first(const Inherited& inherited) {
  while (!inherited->empty()) {
    const Handle<Future> future = std::move(inherited->front());
    inherited->pop_front();
    const bool is_handed_on = !inherited->empty() && fail_in_thread(inherited);
    if (!future->completed())
      future->setErrorIfNeeded(to_exception(belongs_to_parent("the operation")));
    remove_open_future(future.get());
    if (is_handed_on) return;
  }
}

}  // namespace

void add_open_future(Handle<Future> future) {
  Future* const key = future.get();
  const std::lock_guard guard(open->mutex);
  open->futures.emplace(key, std::move(future));
}

void remove_open_future(Future* future) {
  // Released without the mutex.
  decltype(open->futures)::node_type released;
  const std::lock_guard guard(open->mutex);
  released = open->futures.extract(future);
}

void fail_inherited_futures() {
  const auto inherited = std::make_shared<std::deque<Handle<Future>>>();
  {
    const std::lock_guard guard(open->mutex);
    for (const auto& [key, future] : open->futures) inherited->push_back(future);
  }
  if (inherited->empty()) return;
  fail_in_thread(inherited);
}

}  // namespace dunlin::torch_backend
