#include "bindings/nixl/peer.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/log.h"

namespace dunlin::nixl {
namespace {

// Transfers of fewer bytes tell of the latency, others of the bandwidth.
constexpr std::size_t kSmall = 16384;

// The weight of the newest measurement.
constexpr double kNewest = 0.125;

Bytes to_bytes(std::string_view text) {
  const auto bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Peer::Peer(transport::Endpoint& endpoint, Farewells& farewells, const Clock& clock,
           const Config& config, std::string own_name, std::string name, Bytes blob)
    : endpoint_(endpoint),
      farewells_(farewells),
      clock_(clock),
      transports_(config.transports),
      own_name_(std::move(own_name)),
      name_(std::move(name)),
      blob_(std::move(blob)) {}

void Peer::set_blob(Bytes blob) {
  if (blob == blob_) return;
  blob_ = std::move(blob);
  disconnect();
}

void Peer::connect() {
  if (connection_ != nullptr) {
    if (connection_->status().is_ok() || connection_->status().is_busy()) return;
    drop_connection();
  }
  if (is_removed_) return;
  auto made = endpoint_.connect(blob_, to_bytes(own_name_), transports_);
  failure_ = made.status();
  if (made) connection_ = std::move(*made);
}

void Peer::disconnect() {
  drop_connection();
  ++disconnections_;
}

void Peer::drop_connection() {
  farewells_.add(std::exchange(connection_, nullptr));
  ++epoch_;
}

void Peer::remove() {
  is_removed_ = true;
  waiting_.clear();
  disconnect();
}

Status Peer::status() {
  if (connection_ != nullptr) return connection_->status();
  if (!failure_.is_ok()) return failure_;
  return {Code::kClosed, fmt::format("not connected to agent '{}'", name_)};
}

Result<transport::RemoteRegion*> Peer::remote(transport::MemoryId id) {
  auto region = connection_->remote(id);
  if (region.status().code() != Code::kUnavailable || connection_->transport() != "shm" ||
      transports_.size() < 2)
    return region;
  DUNLIN_INFO("nixl: agent '{}' is reached without shared memory: {}", name_,
              region.status().message());
  std::erase(transports_, "shm");
  former_ = connection_;
  farewells_.add_used(std::exchange(connection_, nullptr));
  ++epoch_;
  connect();
  return Status::busy();
}

void Peer::forget_memory(transport::MemoryId id) {
  if (connection_ != nullptr) connection_->forget(id);
  forget_memory();
}

void Peer::notify(std::string text) {
  waiting_.push_back(std::move(text));
  connect();
  progress();
}

void Peer::progress() {
  const Status status = send_waiting();
  if (status.is_ok() || status.is_busy()) return;
  DUNLIN_WARN("nixl: {} notifications for agent '{}' are lost: {}", waiting_.size(), name_,
              status.to_string());
  waiting_.clear();
}

Status Peer::send_waiting() {
  if (!former_.expired()) return Status::busy();
  if (waiting_.empty()) return Status::ok();
  DUNLIN_TRY(status());
  while (!waiting_.empty()) {
    DUNLIN_TRY(connection_->send(as_bytes(waiting_.front())));
    waiting_.pop_front();
  }
  return Status::ok();
}

void Peer::note(std::size_t bytes, Duration time) {
  if (bytes < kSmall) {
    cost_.latency += std::chrono::duration_cast<Duration>(kNewest * (time - cost_.latency));
    return;
  }
  const double rate = static_cast<double>(bytes) / std::max(to_seconds(time), 1e-9);
  cost_.bytes_per_s += kNewest * (rate - cost_.bytes_per_s);
}

}  // namespace dunlin::nixl
