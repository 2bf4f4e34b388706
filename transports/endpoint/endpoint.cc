#include "transports/endpoint/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <utility>

#include "runtime/bootstrap/net.h"
#include "runtime/bootstrap/secret.h"
#include "runtime/membarrier.h"
#include "runtime/topology.h"
#include "transports/endpoint/constants.h"

namespace dunlin::transport {
namespace {

using endpoint::Blob;

// Where to listen: an address, or empty for all interfaces.
Result<std::string> host_to_listen_at(const Config& config, bool is_host_only) {
  if (is_host_only) return std::string("127.0.0.1");
  if (config.tcp_interface.empty()) return std::string();
  const auto addresses = bootstrap::interface_addresses(config.tcp_interface);
  if (!addresses.empty()) return addresses.front();
  return Status(Code::kNotFound,
                fmt::format("DUNLIN_TCP_INTERFACE: no interface '{}' with an IPv4 address",
                            config.tcp_interface));
}

// The addresses that peers on other hosts can try.
std::vector<std::array<std::byte, 4>> advertised(const std::string& listening, bool is_host_only) {
  std::vector<std::array<std::byte, 4>> addresses;
  if (is_host_only) return addresses;
  const auto texts = listening.empty() ? bootstrap::interface_addresses() : std::vector{listening};
  for (const std::string& text : texts) {
    std::array<std::byte, 4> address;
    if (addresses.size() < endpoint::kMaxAddresses &&
        inet_pton(AF_INET, text.c_str(), address.data()) == 1)
      addresses.push_back(address);
  }
  return addresses;
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(const Config& config, const Clock& clock,
                                                   Options options) {
  (void)accept_membarriers();  // for shared memory; before the first thread of Dunlin
  if (options.greeting.size() > kMaxGreeting) {
    return Status(Code::kInvalidArgument, fmt::format("a greeting of {} bytes; {} are allowed",
                                                      options.greeting.size(), kMaxGreeting));
  }
  DUNLIN_ASSIGN(const std::string host, host_to_listen_at(config, options.is_host_only));
  Blob blob;
  blob.key = bootstrap::random_nonce();
  blob.host = endpoint::host_fingerprint();
  blob.addresses = advertised(host, options.is_host_only);
  std::unique_ptr<Endpoint> made(new Endpoint(config, clock, std::move(options)));
  DUNLIN_ASSIGN(made->service_, endpoint::ControlService::create(blob.key, host));
  blob.port = made->service_->port();
  made->blob_ = blob.encode();
  return made;
}

Endpoint::Endpoint(const Config& config, const Clock& clock, Options options)
    : config_(config),
      clock_(clock),
      greeting_(std::move(options.greeting)),
      waiter_(*this, clock, WaitPolicy::from(config, 1, cores_shared_by(1))) {}

Endpoint::~Endpoint() = default;

Result<std::unique_ptr<Connection>> Endpoint::connect(std::span<const std::byte> blob,
                                                      Bytes greeting,
                                                      std::vector<std::string> transports) {
  if (greeting.size() > kMaxGreeting) {
    return Status(Code::kInvalidArgument, fmt::format("a greeting of {} bytes; {} are allowed",
                                                      greeting.size(), kMaxGreeting));
  }
  DUNLIN_ASSIGN(const Blob decoded, Blob::decode(blob));
  DUNLIN_ASSIGN(auto dial, endpoint::Dial::start(decoded, *service_));
  std::unique_ptr<Connection> made(new Connection(*this, std::move(dial), std::move(greeting)));
  if (!transports.empty()) made->config_.transports = std::move(transports);
  return adopt(std::move(made));
}

std::unique_ptr<Connection> Endpoint::accept() {
  auto line = service_->accept();
  if (line == nullptr) return nullptr;
  return adopt(std::unique_ptr<Connection>(new Connection(*this, std::move(line), greeting_)));
}

std::unique_ptr<Connection> Endpoint::adopt(std::unique_ptr<Connection> connection) {
  connections_.push_back(connection.get());
  return connection;
}

void Endpoint::forget(Connection& connection) {
  std::erase(connections_, &connection);
}

Result<MemoryId> Endpoint::register_memory(std::shared_ptr<MemoryRegion> memory) {
  const MemoryId id{++last_memory_};
  registry_.emplace(id, std::move(memory));
  return id;
}

Result<MemoryId> Endpoint::register_memory(void* data, std::size_t size,
                                           std::shared_ptr<GpuDriver> gpu) {
  const bool is_on_gpu = gpu != nullptr;
  DUNLIN_ASSIGN(auto region, is_on_gpu ? MemoryRegion::wrap(data, size, std::move(gpu))
                                       : MemoryRegion::wrap(data, size));
  if (is_on_gpu && region->kind() != MemoryKind::kCuda) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is registered as GPU memory and is none", data));
  }
  return register_memory(std::move(region));
}

Status Endpoint::deregister(MemoryId id) {
  if (registry_.erase(id) == 0) {
    return {Code::kNotFound, fmt::format("no memory is registered with the number {}",
                                         static_cast<std::uint64_t>(id))};
  }
  for (Connection* const connection : connections_) connection->on_deregister(id);
  return Status::ok();
}

std::size_t Endpoint::progress() {
  std::size_t events = 0;
  for (Connection* const connection : connections_) events += connection->progress();
  return events;
}

bool Endpoint::arm() {
  for (Connection* const connection : connections_) {
    if (!connection->arm()) return false;
  }
  return true;
}

void Endpoint::disarm() {
  service_->clear_event();
  for (Connection* const connection : connections_) connection->disarm();
}

const std::vector<int>& Endpoint::wait_fds() const {
  wait_fds_ = {service_->event_fd()};
  for (const Connection* const connection : connections_) connection->append_wait_fds(wait_fds_);
  return wait_fds_;
}

}  // namespace dunlin::transport
