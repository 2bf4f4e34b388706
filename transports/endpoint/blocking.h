// BlockingEndpoint: an endpoint with its configuration, and calls that wait, for owners that have
// nothing else to do meanwhile. The C++ and C interfaces are made of it; plugins, which must not
// block, use Endpoint itself.
//
// Waits return kDeadlineExceeded after their timeout, and advance all connections of the endpoint.
// One owner thread, as of an Endpoint.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "transports/completion.h"
#include "transports/endpoint/endpoint.h"

namespace dunlin::transport {

class BlockingEndpoint {
 public:
  static Result<std::unique_ptr<BlockingEndpoint>> open(Config config, Endpoint::Options options);

  const Config& config() const { return config_; }
  Endpoint& endpoint() { return *endpoint_; }

  // Connects to the endpoint with this blob. Returns a usable connection.
  Result<std::unique_ptr<Connection>> connect(std::span<const std::byte> blob, Bytes greeting,
                                              Duration timeout);
  // Returns the next usable connection that a peer has made.
  Result<std::unique_ptr<Connection>> accept(Duration timeout);
  // The peer's memory with this number, valid as of Connection::remote().
  Result<RemoteRegion*> remote(Connection& connection, MemoryId id, Duration timeout);
  // The next message; the reason of the connection's end if none can come any more.
  Result<Bytes> receive(Connection& connection, Duration timeout);
  // Waits until the completion has fired, and returns its status.
  Status wait(const Completion& completion, Duration timeout);

 private:
  explicit BlockingEndpoint(Config config) : config_(std::move(config)) {}
  // A connection that peers have begun and that is usable now; null if there is none. Drops those
  // that have ended.
  std::unique_ptr<Connection> usable();

  Config config_;
  SteadyClock clock_;
  std::unique_ptr<Endpoint> endpoint_;
  std::deque<std::unique_ptr<Connection>> arrived_;  // and not yet usable
};

}  // namespace dunlin::transport
