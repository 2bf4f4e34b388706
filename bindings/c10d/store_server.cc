#include "bindings/c10d/store_server.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <exception>
#include <thread>
#include <utility>

namespace dunlin::torch_backend {
namespace {

// Between two polls of the server, on which the other ranks' next group waits.
constexpr auto kNap = std::chrono::milliseconds(1);

bool is_over_tcp(Handle<c10d::Store> store) {
  while (auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get()))
    store = prefixed->getUnderlyingStore();
  return dynamic_cast<c10d::TCPStore*>(store.get()) != nullptr;
}

}  // namespace

StoreServer::StoreServer(Handle<c10d::Store> store, int rank) {
  // The first rank's reference would keep the server alive.
  if (store && rank != 0 && is_over_tcp(store)) store_ = std::move(store);
}

void StoreServer::await_end(Duration timeout) {
  const auto store = std::exchange(store_, {});
  if (!store) return;
  const SteadyClock clock;
  const TimePoint until = clock.now() + timeout;
  try {
    for (; clock.now() < until; std::this_thread::sleep_for(kNap))
      (void)store->check({"dunlin/arrivals"});
  } catch (const std::exception&) {
    // The connection has ended.
  }
}

}  // namespace dunlin::torch_backend
