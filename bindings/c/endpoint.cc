// The C interface of endpoints.
#include "bindings/c/endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c/internal.h"
#include "transports/endpoint/blocking.h"

using dunlin::Bytes;
using dunlin::Code;
using dunlin::Config;
using dunlin::Duration;
using dunlin::Environment;
using dunlin::Result;
using dunlin::Status;
using dunlin::TimePoint;
using dunlin::c::guarded;
using dunlin::transport::BlockingEndpoint;
using dunlin::transport::Completion;
using dunlin::transport::Connection;
using dunlin::transport::LocalSlice;
using dunlin::transport::MemoryId;
using dunlin::transport::RemoteRegion;
using dunlin::transport::RemoteSlice;
using dunlin::transport::Visibility;

struct dunlin_endpoint {
  std::shared_ptr<BlockingEndpoint> endpoint;
};

struct dunlin_connection {
  std::shared_ptr<BlockingEndpoint> endpoint;
  std::optional<Bytes> unread;  // a message that no buffer was large enough for
  // Of the copies in progress. The connection is destroyed first, and fires those that are left.
  std::vector<std::shared_ptr<Completion>> completions;
  std::unique_ptr<Connection> connection;
  std::string transport;
};

struct dunlin_transfer {
  std::shared_ptr<BlockingEndpoint> endpoint;
  std::shared_ptr<Completion> completion;
};

namespace {

Bytes bytes_of(const void* data, size_t size) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return data == nullptr ? Bytes() : Bytes(begin, begin + size);
}

Duration timeout_of(const BlockingEndpoint& endpoint, double seconds) {
  return dunlin::c::timeout_of(endpoint.config().deadline, seconds);
}

dunlin_connection* handle_of(std::shared_ptr<BlockingEndpoint> endpoint,
                             std::unique_ptr<Connection> connection) {
  auto made = std::make_unique<dunlin_connection>();
  made->endpoint = std::move(endpoint);
  made->transport = connection->transport();
  made->connection = std::move(connection);
  return made.release();
}

Status give(const Result<BlockingEndpoint::Memory>& made, dunlin_endpoint_memory* memory) {
  DUNLIN_TRY(made.status());
  *memory = {static_cast<uint64_t>(made->id), made->data, made->size};
  return Status::ok();
}

// A completion that lives until it has fired.
std::shared_ptr<Completion> completion_of(dunlin_connection& connection) {
  std::erase_if(connection.completions, [](const auto& each) { return each->is_done(); });
  return connection.completions.emplace_back(std::make_shared<Completion>());
}

// Posts an operation as soon as there is room for it.
template <typename Post>
Status post(dunlin_connection& connection, Duration timeout, Post post) {
  return connection.endpoint->wait(
      [&]() -> Status {
        DUNLIN_TRY(connection.connection->status());
        return post();
      },
      timeout, "there was no room for the operation");
}

// Starts a copy, and gives the caller its handle, if it wants one.
template <typename Post>
Status start(dunlin_connection& connection, Duration timeout, dunlin_transfer** transfer,
             Post post_with) {
  auto made = std::make_unique<dunlin_transfer>();
  made->endpoint = connection.endpoint;
  made->completion = completion_of(connection);
  const Status posted =
      post(connection, timeout, [&] { return post_with(made->completion.get()); });
  if (!posted.is_ok()) {
    connection.completions.pop_back();
    return posted;
  }
  if (transfer != nullptr) *transfer = made.release();
  return Status::ok();
}

// A part of memory, by its number at the end that has registered it.
struct Part {
  uint64_t number;
  size_t offset;
};

// Starts a copy between the two parts, with post(local slice, remote slice, completion).
template <typename Post>
dunlin_code copy(dunlin_connection* connection, Part local, Part remote, size_t bytes,
                 dunlin_transfer** transfer, Post post) {
  return guarded([&]() -> Status {
    BlockingEndpoint& endpoint = *connection->endpoint;
    const Duration deadline = endpoint.config().deadline;
    DUNLIN_TRY(connection->connection->status());
    DUNLIN_ASSIGN(const LocalSlice here,
                  connection->connection->local(MemoryId(local.number), local.offset, bytes));
    DUNLIN_ASSIGN(const RemoteRegion* const region,
                  endpoint.remote(*connection->connection, MemoryId(remote.number), deadline));
    DUNLIN_ASSIGN(const RemoteSlice there, region->slice(remote.offset, bytes));
    return start(*connection, deadline, transfer,
                 [&](Completion* completion) { return post(here, there, completion); });
  });
}

// Frees the handle of a copy that is over.
Status finish(dunlin_transfer** transfer, Status status) {
  if (!(*transfer)->completion->is_done()) return status;
  delete std::exchange(*transfer, nullptr);
  return status;
}

Result<Bytes> next_message(dunlin_connection& connection, double timeout_seconds) {
  if (connection.unread) return *std::exchange(connection.unread, std::nullopt);
  Result<Bytes> message = connection.endpoint->receive(
      *connection.connection, timeout_of(*connection.endpoint, timeout_seconds));
  if (timeout_seconds == 0 && message.status().code() == Code::kDeadlineExceeded)
    return Status::busy();
  return message;
}

}  // namespace

dunlin_code dunlin_endpoint_open(const dunlin_endpoint_options* options,
                                 dunlin_endpoint** endpoint) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(Config config, Config::parse(Environment::of_process()));
    dunlin::transport::Endpoint::Options wanted;
    if (options != nullptr) {
      wanted.is_host_only = options->is_host_only != 0;
      wanted.greeting = bytes_of(options->greeting, options->greeting_size);
    }
    DUNLIN_ASSIGN(auto opened, BlockingEndpoint::open(std::move(config), std::move(wanted)));
    *endpoint = new dunlin_endpoint{std::move(opened)};
    return Status::ok();
  });
}

void dunlin_endpoint_close(dunlin_endpoint* endpoint) {
  delete endpoint;
}

const void* dunlin_endpoint_blob(const dunlin_endpoint* endpoint, size_t* size) {
  const Bytes& blob = endpoint->endpoint->endpoint().blob();
  *size = blob.size();
  return blob.data();
}

dunlin_code dunlin_endpoint_connect(dunlin_endpoint* endpoint, const void* blob, size_t blob_size,
                                    const void* greeting, size_t greeting_size,
                                    double timeout_seconds, dunlin_connection** connection) {
  return guarded([&]() -> Status {
    BlockingEndpoint& own = *endpoint->endpoint;
    DUNLIN_ASSIGN(auto made,
                  own.connect({static_cast<const std::byte*>(blob), blob_size},
                              bytes_of(greeting, greeting_size), timeout_of(own, timeout_seconds)));
    *connection = handle_of(endpoint->endpoint, std::move(made));
    return Status::ok();
  });
}

dunlin_code dunlin_endpoint_accept(dunlin_endpoint* endpoint, double timeout_seconds,
                                   dunlin_connection** connection) {
  return guarded([&]() -> Status {
    BlockingEndpoint& own = *endpoint->endpoint;
    DUNLIN_ASSIGN(auto made, own.accept(timeout_of(own, timeout_seconds)));
    *connection = handle_of(endpoint->endpoint, std::move(made));
    return Status::ok();
  });
}

dunlin_code dunlin_endpoint_allocate(dunlin_endpoint* endpoint, size_t bytes,
                                     dunlin_endpoint_memory* memory) {
  return guarded([&] { return give(endpoint->endpoint->allocate(bytes), memory); });
}

dunlin_code dunlin_endpoint_wrap(dunlin_endpoint* endpoint, void* data, size_t bytes,
                                 dunlin_endpoint_memory* memory) {
  return guarded([&] { return give(endpoint->endpoint->wrap(data, bytes), memory); });
}

dunlin_code dunlin_endpoint_deregister(dunlin_endpoint* endpoint, uint64_t number) {
  return guarded([&] { return endpoint->endpoint->endpoint().deregister(MemoryId(number)); });
}

size_t dunlin_endpoint_progress(dunlin_endpoint* endpoint) {
  size_t events = 0;
  (void)guarded([&] {
    events = endpoint->endpoint->progress();
    return Status::ok();
  });
  return events;
}

void dunlin_connection_close(dunlin_connection* connection) {
  delete connection;
}

dunlin_code dunlin_connection_status(const dunlin_connection* connection) {
  return guarded([&] { return connection->connection->status(); });
}

const void* dunlin_connection_greeting(const dunlin_connection* connection, size_t* size) {
  const Bytes& greeting = connection->connection->greeting();
  *size = greeting.size();
  return greeting.data();
}

const char* dunlin_connection_transport(const dunlin_connection* connection) {
  return connection->transport.c_str();
}

dunlin_code dunlin_connection_put(dunlin_connection* connection, uint64_t local,
                                  size_t local_offset, uint64_t remote, size_t remote_offset,
                                  size_t bytes, dunlin_transfer** transfer) {
  return copy(connection, {local, local_offset}, {remote, remote_offset}, bytes, transfer,
              [&](const LocalSlice& here, const RemoteSlice& there, Completion* completion) {
                return connection->connection->lane().put(here, there, completion);
              });
}

dunlin_code dunlin_connection_get(dunlin_connection* connection, uint64_t remote,
                                  size_t remote_offset, uint64_t local, size_t local_offset,
                                  size_t bytes, dunlin_transfer** transfer) {
  return copy(connection, {local, local_offset}, {remote, remote_offset}, bytes, transfer,
              [&](const LocalSlice& here, const RemoteSlice& there, Completion* completion) {
                return BlockingEndpoint::get(*connection->connection, there, here, completion);
              });
}

dunlin_code dunlin_connection_flush(dunlin_connection* connection, double timeout_seconds) {
  return guarded([&]() -> Status {
    BlockingEndpoint& endpoint = *connection->endpoint;
    const Duration timeout = timeout_of(endpoint, timeout_seconds);
    const TimePoint until = endpoint.now() + timeout;
    dunlin_transfer* flushed = nullptr;
    DUNLIN_TRY(start(*connection, timeout, &flushed, [&](Completion* completion) {
      return connection->connection->lane().flush(Visibility::kRemote, completion);
    }));
    const std::unique_ptr<dunlin_transfer> owned(flushed);
    return endpoint.wait(*owned->completion, std::max(until - endpoint.now(), Duration::zero()));
  });
}

void dunlin_connection_forget(dunlin_connection* connection, uint64_t remote) {
  connection->connection->forget(MemoryId(remote));
}

dunlin_code dunlin_transfer_test(dunlin_transfer** transfer) {
  if (*transfer == nullptr) return DUNLIN_OK;
  return guarded([&] {
    const Completion& completion = *(*transfer)->completion;
    if (!completion.is_done()) (*transfer)->endpoint->progress();
    return finish(transfer, completion.is_done() ? completion.status() : Status::busy());
  });
}

dunlin_code dunlin_transfer_wait(dunlin_transfer** transfer, double timeout_seconds) {
  if (*transfer == nullptr) return DUNLIN_OK;
  return guarded([&] {
    BlockingEndpoint& endpoint = *(*transfer)->endpoint;
    return finish(transfer,
                  endpoint.wait(*(*transfer)->completion, timeout_of(endpoint, timeout_seconds)));
  });
}

void dunlin_transfer_forget(dunlin_transfer* transfer) {
  delete transfer;
}

dunlin_code dunlin_connection_send(dunlin_connection* connection, const void* message,
                                   size_t size) {
  return guarded([&] {
    return post(*connection, connection->endpoint->config().deadline, [&] {
      return connection->connection->send({static_cast<const std::byte*>(message), size});
    });
  });
}

dunlin_code dunlin_connection_receive(dunlin_connection* connection, void* buffer, size_t capacity,
                                      size_t* size, double timeout_seconds) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(Bytes message, next_message(*connection, timeout_seconds));
    *size = message.size();
    if (message.size() > capacity) {
      const std::string why =
          fmt::format("a message of {} bytes, a buffer of {}", message.size(), capacity);
      connection->unread = std::move(message);
      return {Code::kOutOfRange, why};
    }
    if (!message.empty()) std::memcpy(buffer, message.data(), message.size());
    return Status::ok();
  });
}
