#include <dunlin/endpoint.h>

#include <utility>

#include "bindings/cpp/internal.h"
#include "transports/endpoint/blocking.h"

namespace dunlin {

struct EndpointState {
  std::unique_ptr<transport::BlockingEndpoint> endpoint;
};

struct Connection::Impl {
  std::shared_ptr<EndpointState> state;
  std::unique_ptr<transport::Connection> connection;
};

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;

Status Connection::status() const {
  return impl_->connection->status();
}

const Bytes& Connection::greeting() const {
  return impl_->connection->greeting();
}

std::string Connection::transport() const {
  return std::string(impl_->connection->transport());
}

Result<MemorySlice> Connection::local(const EndpointMemory& memory) {
  DUNLIN_ASSIGN(const auto slice,
                impl_->connection->local(transport::MemoryId(memory.number), 0, memory.size));
  return Internal::external(slice);
}

Result<RemoteMemorySlice> Connection::remote(std::uint64_t number, Duration timeout) {
  DUNLIN_ASSIGN(
      const transport::RemoteRegion* const region,
      impl_->state->endpoint->remote(*impl_->connection, transport::MemoryId(number), timeout));
  return Internal::external(region->whole());
}

void Connection::forget(std::uint64_t number) {
  impl_->connection->forget(transport::MemoryId(number));
}

Status Connection::put(const MemorySlice& from, const RemoteMemorySlice& to,
                       Completion* completion) {
  DUNLIN_TRY(status());
  return impl_->connection->lane().put(Internal::internal(from), Internal::internal(to),
                                       completion);
}

Status Connection::get(const RemoteMemorySlice& from, const MemorySlice& to,
                       Completion* completion) {
  DUNLIN_TRY(status());
  return transport::BlockingEndpoint::get(*impl_->connection, Internal::internal(from),
                                          Internal::internal(to), completion);
}

Status Connection::flush(Visibility visibility, Completion* completion) {
  DUNLIN_TRY(status());
  return impl_->connection->lane().flush(visibility == Visibility::kLocal
                                             ? transport::Visibility::kLocal
                                             : transport::Visibility::kRemote,
                                         completion);
}

Status Connection::wait(const Completion& completion, Duration timeout) {
  return impl_->state->endpoint->wait(completion, timeout);
}

Status Connection::send(std::span<const std::byte> message) {
  return impl_->connection->send(message);
}

std::optional<Bytes> Connection::receive() {
  if (auto message = impl_->connection->receive()) return message;
  impl_->state->endpoint->progress();
  return impl_->connection->receive();
}

Result<Bytes> Connection::receive(Duration timeout) {
  return impl_->state->endpoint->receive(*impl_->connection, timeout);
}

Endpoint::Endpoint(std::shared_ptr<EndpointState> state) : state_(std::move(state)) {}
Endpoint::Endpoint(Endpoint&&) noexcept = default;
Endpoint& Endpoint::operator=(Endpoint&&) noexcept = default;
Endpoint::~Endpoint() = default;

Result<Endpoint> Endpoint::open(const EndpointOptions& options) {
  Environment environment = Environment::of_process();
  for (const auto& [name, value] : options.settings) environment.set(name, value);
  DUNLIN_ASSIGN(Config config, Config::parse(environment));
  auto state = std::make_shared<EndpointState>();
  DUNLIN_ASSIGN(state->endpoint, transport::BlockingEndpoint::open(
                                     std::move(config), {.is_host_only = options.is_host_only,
                                                         .greeting = options.greeting}));
  return Endpoint(std::move(state));
}

const Bytes& Endpoint::blob() const {
  return state_->endpoint->endpoint().blob();
}

Result<Connection> Endpoint::connect(std::span<const std::byte> blob, Duration timeout,
                                     Bytes greeting) {
  auto impl = std::make_unique<Connection::Impl>();
  impl->state = state_;
  DUNLIN_ASSIGN(impl->connection, state_->endpoint->connect(blob, std::move(greeting), timeout));
  return Connection(std::move(impl));
}

Result<Connection> Endpoint::accept(Duration timeout) {
  auto impl = std::make_unique<Connection::Impl>();
  impl->state = state_;
  DUNLIN_ASSIGN(impl->connection, state_->endpoint->accept(timeout));
  return Connection(std::move(impl));
}

Result<EndpointMemory> Endpoint::allocate(std::size_t size) {
  DUNLIN_ASSIGN(const auto made, state_->endpoint->allocate(size));
  return EndpointMemory{static_cast<std::uint64_t>(made.id), made.data, made.size};
}

Result<EndpointMemory> Endpoint::wrap(void* data, std::size_t size) {
  DUNLIN_ASSIGN(const auto made, state_->endpoint->wrap(data, size));
  return EndpointMemory{static_cast<std::uint64_t>(made.id), made.data, made.size};
}

Status Endpoint::deregister(const EndpointMemory& memory) {
  return state_->endpoint->endpoint().deregister(transport::MemoryId(memory.number));
}

std::size_t Endpoint::progress() {
  return state_->endpoint->progress();
}

}  // namespace dunlin
