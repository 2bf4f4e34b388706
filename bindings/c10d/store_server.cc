#include "bindings/c10d/store_server.h"

#include <poll.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/bootstrap/net.h"
#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin::torch_backend {
namespace {

// Between two polls of the server, on which the other ranks' next group waits.
constexpr auto kNap = std::chrono::milliseconds(1);
// A server that ends its connections closes its listening socket next, in the same thread: what has
// been connected for that long is connected to another server.
constexpr auto kClosing = std::chrono::milliseconds(500);

std::optional<bootstrap::Endpoint> server_of(Handle<c10d::Store> store) {
  while (auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get()))
    store = prefixed->getUnderlyingStore();
  const auto* const over_tcp = dynamic_cast<c10d::TCPStore*>(store.get());
  if (over_tcp == nullptr) return std::nullopt;
  return bootstrap::Endpoint{over_tcp->getHost(), over_tcp->getPort()};
}

// Whether the server answers this client.
bool answers(c10d::Store& store) {
  try {
    (void)store.check({"dunlin/arrivals"});
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Whether a server listens that has ended its connections, and would end a new one as well.
bool is_closing(const bootstrap::Endpoint& server, TimePoint until) {
  const Result<Fd> socket = bootstrap::connect_to(server, until);
  if (!socket.is_ok()) return false;
  return bootstrap::wait_for(socket->get(), POLLIN, SteadyClock().now() + kClosing);
}

}  // namespace

StoreServer::StoreServer(Handle<c10d::Store> store, int rank) {
  // The first rank's reference would keep the server alive.
  if (store && rank != 0 && server_of(store)) store_ = std::move(store);
}

void StoreServer::await_end(Duration timeout) {
  const auto store = std::exchange(store_, {});
  if (!store) return;
  const SteadyClock clock;
  const TimePoint until = clock.now() + timeout;
  while (answers(*store)) {
    if (clock.now() >= until) return;
    std::this_thread::sleep_for(kNap);
  }
  // PyTorch's client that connects now would fail. If a server stays, it is that of the first
  // rank's next group.
  const bootstrap::Endpoint server = *server_of(store);
  while (is_closing(server, until) && clock.now() < until) std::this_thread::sleep_for(kNap);
}

}  // namespace dunlin::torch_backend
