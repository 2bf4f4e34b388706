#include "transports/endpoint/blocking.h"

#include <fmt/format.h>

#include <utility>

namespace dunlin::transport {

Result<std::unique_ptr<BlockingEndpoint>> BlockingEndpoint::open(Config config,
                                                                 Endpoint::Options options) {
  std::unique_ptr<BlockingEndpoint> made(new BlockingEndpoint(std::move(config)));
  DUNLIN_ASSIGN(made->endpoint_, Endpoint::create(made->config_, made->clock_, std::move(options)));
  return made;
}

Status BlockingEndpoint::late(Duration timeout, std::string_view lacking) {
  return {Code::kDeadlineExceeded, fmt::format("{} within {:g} s", lacking, to_seconds(timeout))};
}

Result<BlockingEndpoint::Memory> BlockingEndpoint::add(
    Result<std::shared_ptr<MemoryRegion>> region) {
  DUNLIN_TRY(region.status());
  Memory memory{.data = (*region)->data(), .size = (*region)->size()};
  DUNLIN_ASSIGN(memory.id, endpoint_->register_memory(std::move(*region)));
  return memory;
}

Result<std::unique_ptr<Connection>> BlockingEndpoint::connect(std::span<const std::byte> blob,
                                                              Bytes greeting, Duration timeout) {
  DUNLIN_ASSIGN(auto connection, endpoint_->connect(blob, std::move(greeting)));
  DUNLIN_TRY(wait([&] { return connection->status(); }, timeout, "the connection was not made"));
  return connection;
}

Result<std::unique_ptr<Connection>> BlockingEndpoint::accept(Duration timeout) {
  std::unique_ptr<Connection> connection;
  DUNLIN_TRY(wait(
      [&] {
        connection = next_made();
        return connection == nullptr ? Status::busy() : Status::ok();
      },
      timeout, "no peer has connected"));
  return connection;
}

void BlockingEndpoint::adopt() {
  while (auto next = endpoint_->accept()) arrived_.push_back(std::move(next));
}

std::unique_ptr<Connection> BlockingEndpoint::next_made() {
  for (auto at = arrived_.begin(); at != arrived_.end();) {
    if ((*at)->status().is_busy()) {
      ++at;
      continue;
    }
    std::unique_ptr<Connection> settled = std::move(*at);
    at = arrived_.erase(at);
    if (settled->has_been_usable()) return settled;
  }
  return nullptr;
}

Result<RemoteRegion*> BlockingEndpoint::remote(Connection& connection, MemoryId id,
                                               Duration timeout) {
  RemoteRegion* region = nullptr;
  DUNLIN_TRY(wait(
      [&]() -> Status {
        DUNLIN_ASSIGN(region, connection.remote(id));
        return Status::ok();
      },
      timeout, "the peer has not described its memory"));
  return region;
}

Status BlockingEndpoint::get(Connection& connection, const RemoteSlice& from, const LocalSlice& to,
                             Completion* completion) {
  RemoteReads* const reads = connection.lane().reads();
  if (reads == nullptr)
    return {Code::kUnavailable, "the connection's transport has no remote reads"};
  return reads->get(from, to, completion);
}

Result<Bytes> BlockingEndpoint::receive(Connection& connection, Duration timeout) {
  std::optional<Bytes> message;
  DUNLIN_TRY(wait(
      [&] {
        message = connection.receive();
        if (message) return Status::ok();
        return connection.status().is_ok() ? Status::busy() : connection.status();
      },
      timeout, "no message has come"));
  return std::move(*message);
}

Status BlockingEndpoint::wait(const Completion& completion, Duration timeout) {
  return wait([&] { return completion.is_done() ? completion.status() : Status::busy(); }, timeout,
              "the operation has not completed");
}

}  // namespace dunlin::transport
