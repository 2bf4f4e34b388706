#include "bindings/nccl/receive_comm.h"

#include <fmt/format.h>

#include <utility>

namespace dunlin::nccl {

// Twice as many as NCCL needs: a request stays in use until NCCL has tested it.
ReceiveComm::ReceiveComm(std::shared_ptr<SharedEndpoint> endpoint,
                         std::unique_ptr<transport::Connection> connection)
    : Comm(std::move(endpoint), std::move(connection), 2 * abi::kMaxRequests) {}

Status ReceiveComm::take(Message message) {
  if (message.kind != Message::Kind::kArrived && message.kind != Message::Kind::kRefused)
    return {Code::kCorrupted, "a message for a sender has reached a receiver"};
  if (message.receive >= capacity_) return {Code::kCorrupted, "data for a receive that is not"};
  Request& request = requests_[message.receive];
  const std::size_t index = message.index;
  if (!request.is_used || index >= static_cast<std::size_t>(request.count) ||
      request.has_arrived[index])
    return {Code::kCorrupted, "data for a receive that is not open"};
  request.has_arrived[index] = true;
  request.sizes[index] = message.number;
  if (message.kind == Message::Kind::kRefused) {
    request.is_refused = true;
    return Status::ok();
  }
  if (message.number > request.capacities[index])
    return {Code::kCorrupted, "more data than a buffer holds"};
  return Status::ok();
}

bool ReceiveComm::is_done(Request& request) const {
  for (int i = 0; i < request.count; ++i) {
    if (!request.has_arrived[i]) return false;
  }
  return true;
}

Status ReceiveComm::outcome(Request& request) {
  if (!request.is_refused) return Status::ok();
  return {Code::kClosed, "the peer has sent more bytes than the buffer of a receive holds"};
}

void ReceiveComm::on_removed(transport::MemoryId id) {
  owed_.push_back({.kind = Message::Kind::kForget, .number = static_cast<std::uint64_t>(id)});
  // The error, if there is one, stays with the connection.
  (void)send_owed();
}

Status ReceiveComm::send_owed() {
  while (!owed_.empty()) {
    DUNLIN_TRY(connection_->send(owed_.front().encode()));
    owed_.pop_front();
  }
  return Status::ok();
}

void ReceiveComm::advance() {
  Comm::advance();
  if (!owed_.empty()) (void)send_owed();
}

Result<Request*> ReceiveComm::receive(std::span<const Target> targets) {
  const std::lock_guard lock(endpoint_->mutex);
  if (targets.empty() || targets.size() > kMaxGroup) {
    return Status(Code::kInvalidArgument, fmt::format("{} grouped receives; 1 to {} are possible",
                                                      targets.size(), kMaxGroup));
  }
  advance();
  DUNLIN_TRY(Status(failure_));
  if (connection_->status().is_error()) return connection_->status();
  Request* const request = free_request();
  if (request == nullptr) return nullptr;

  Message announcement;
  announcement.receive = static_cast<std::uint16_t>(request - requests_.get());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& target = targets[i];
    Memory* const memory = find(target.memory);
    std::size_t offset = 0;
    if (target.size > 0) {
      if (memory == nullptr)
        return Status(Code::kInvalidArgument, "the memory to receive into is not registered");
      DUNLIN_ASSIGN(offset, memory->offset_of(target.data, target.size));
    }
    request->memories[i] = memory;
    request->offsets[i] = offset;
    request->capacities[i] = target.size;
    request->has_arrived[i] = false;
    announcement.buffers.push_back({memory == nullptr ? 0 : static_cast<std::uint64_t>(memory->id),
                                    offset, target.size, target.tag});
  }
  Status status = connection_->send(announcement.encode());
  if (status.is_busy()) return nullptr;
  if (!status.is_ok()) {
    fail(std::move(status));
    return Status(failure_);
  }
  request->is_used = true;
  request->is_refused = false;
  request->count = static_cast<int>(targets.size());
  request->put.reset();
  return request;
}

}  // namespace dunlin::nccl
