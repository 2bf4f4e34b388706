// BlockingEndpoint: an endpoint with its configuration, and calls that wait, for owners that have
// nothing else to do meanwhile. The C++ and C interfaces are made of it; plugins, which must not
// block, use Endpoint itself.
//
// Waits return kDeadlineExceeded after their timeout, with a text that says what was waited for.
// They advance all connections, also those that peers are making. One owner thread, as of an
// Endpoint.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "transports/completion.h"
#include "transports/endpoint/endpoint.h"

namespace dunlin::transport {

class BlockingEndpoint {
 public:
  // Memory that the endpoint has registered.
  struct Memory {
    MemoryId id{};
    std::byte* data = nullptr;
    std::size_t size = 0;
  };

  static Result<std::unique_ptr<BlockingEndpoint>> open(Config config, Endpoint::Options options);

  const Config& config() const { return config_; }
  Endpoint& endpoint() { return *endpoint_; }
  TimePoint now() const { return clock_.now(); }

  // Waits until ready() returns something other than kBusy, and returns that. `lacking` says what
  // there was not, for the error at the timeout.
  template <typename Ready>
  Status wait(Ready&& ready, Duration timeout, std::string_view lacking) {
    const auto adopting = [&] {
      adopt();
      return ready();
    };
    Status status = endpoint_->wait(adopting, timeout);
    const bool is_late = status.code() == Code::kDeadlineExceeded && status.message().empty();
    return is_late ? late(timeout, lacking) : status;
  }

  // Advances all connections, also those that peers are making. Returns how many events it handled.
  std::size_t progress() {
    adopt();
    return endpoint_->progress();
  }

  // Allocates memory, or takes the caller's, and registers it (Endpoint::register_memory).
  Result<Memory> allocate(std::size_t size) { return add(MemoryRegion::allocate(size)); }
  Result<Memory> wrap(void* data, std::size_t size) { return add(MemoryRegion::wrap(data, size)); }

  // Connects to the endpoint with this blob. Returns a usable connection.
  Result<std::unique_ptr<Connection>> connect(std::span<const std::byte> blob, Bytes greeting,
                                              Duration timeout);
  // Returns the next connection that a peer has made. It is usable, or was: a peer may have sent
  // messages and left by now.
  Result<std::unique_ptr<Connection>> accept(Duration timeout);
  // The peer's memory with this number, valid as of Connection::remote().
  Result<RemoteRegion*> remote(Connection& connection, MemoryId id, Duration timeout);
  // Posts a get on the connection's lane; kUnavailable if its transport has none.
  static Status get(Connection& connection, const RemoteSlice& from, const LocalSlice& to,
                    Completion* completion);
  // The next message; the reason of the connection's end if none can come any more.
  Result<Bytes> receive(Connection& connection, Duration timeout);
  // Waits until the completion has fired, and returns its status.
  Status wait(const Completion& completion, Duration timeout);

 private:
  explicit BlockingEndpoint(Config config) : config_(std::move(config)) {}
  static Status late(Duration timeout, std::string_view lacking);
  Result<Memory> add(Result<std::shared_ptr<MemoryRegion>> region);
  // Takes in the connections that peers have begun, so that they are advanced.
  void adopt();
  // A connection that a peer has made; null if there is none. Drops those that came to nothing.
  std::unique_ptr<Connection> next_made();

  Config config_;
  SteadyClock clock_;
  std::unique_ptr<Endpoint> endpoint_;
  std::deque<std::unique_ptr<Connection>> arrived_;  // and not yet usable
};

}  // namespace dunlin::transport
