#include "transports/endpoint/blocking.h"

#include <utility>

namespace dunlin::transport {

Result<std::unique_ptr<BlockingEndpoint>> BlockingEndpoint::open(Config config,
                                                                 Endpoint::Options options) {
  std::unique_ptr<BlockingEndpoint> made(new BlockingEndpoint(std::move(config)));
  DUNLIN_ASSIGN(made->endpoint_, Endpoint::create(made->config_, made->clock_, std::move(options)));
  return made;
}

Result<std::unique_ptr<Connection>> BlockingEndpoint::connect(std::span<const std::byte> blob,
                                                              Bytes greeting, Duration timeout) {
  DUNLIN_ASSIGN(auto connection, endpoint_->connect(blob, std::move(greeting)));
  DUNLIN_TRY(endpoint_->wait([&] { return connection->status(); }, timeout));
  return connection;
}

Result<std::unique_ptr<Connection>> BlockingEndpoint::accept(Duration timeout) {
  std::unique_ptr<Connection> connection;
  DUNLIN_TRY(endpoint_->wait(
      [&] {
        connection = usable();
        return connection == nullptr ? Status::busy() : Status::ok();
      },
      timeout));
  return connection;
}

std::unique_ptr<Connection> BlockingEndpoint::usable() {
  while (auto next = endpoint_->accept()) arrived_.push_back(std::move(next));
  for (auto at = arrived_.begin(); at != arrived_.end();) {
    if ((*at)->status().is_busy()) {
      ++at;
      continue;
    }
    std::unique_ptr<Connection> settled = std::move(*at);
    at = arrived_.erase(at);
    if (settled->status().is_ok()) return settled;
  }
  return nullptr;
}

Result<RemoteRegion*> BlockingEndpoint::remote(Connection& connection, MemoryId id,
                                               Duration timeout) {
  RemoteRegion* region = nullptr;
  DUNLIN_TRY(endpoint_->wait(
      [&]() -> Status {
        DUNLIN_ASSIGN(region, connection.remote(id));
        return Status::ok();
      },
      timeout));
  return region;
}

Result<Bytes> BlockingEndpoint::receive(Connection& connection, Duration timeout) {
  std::optional<Bytes> message;
  DUNLIN_TRY(endpoint_->wait(
      [&] {
        message = connection.receive();
        if (message) return Status::ok();
        return connection.status().is_ok() ? Status::busy() : connection.status();
      },
      timeout));
  return std::move(*message);
}

Status BlockingEndpoint::wait(const Completion& completion, Duration timeout) {
  return endpoint_->wait(
      [&] { return completion.is_done() ? completion.status() : Status::busy(); }, timeout);
}

}  // namespace dunlin::transport
