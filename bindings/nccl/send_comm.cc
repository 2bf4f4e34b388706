#include "bindings/nccl/send_comm.h"

#include <fmt/format.h>

#include <utility>

namespace dunlin::nccl {

using transport::MemoryId;

// NCCL may have all of a receiver's groups in progress, with a send for each buffer.
SendComm::SendComm(std::shared_ptr<SharedEndpoint> endpoint,
                   std::unique_ptr<transport::Connection> connection)
    : Comm(std::move(endpoint), std::move(connection), abi::kMaxRequests * kMaxGroup) {}

Status SendComm::take(Message message) {
  if (message.kind == Message::Kind::kForget) {
    forgotten_.push_back(MemoryId(message.number));
    return Status::ok();
  }
  if (message.kind != Message::Kind::kReceive)
    return {Code::kCorrupted, "a message for a receiver has reached a sender"};
  Receive receive{message.receive, std::move(message.buffers), {}, 0};
  receive.is_taken.resize(receive.buffers.size());
  // Asks for memory that is not known yet, so that the answer is there when it is needed.
  for (const Buffer& buffer : receive.buffers) {
    if (buffer.size > 0) (void)connection_->remote(MemoryId(buffer.memory)).status();
  }
  receives_.push_back(std::move(receive));
  return Status::ok();
}

bool SendComm::is_sending() const {
  for (std::size_t i = 0; i < capacity_; ++i) {
    if (requests_[i].is_used && !requests_[i].put.is_done()) return true;
  }
  return false;
}

void SendComm::forget_memory() {
  std::erase_if(forgotten_, [&](MemoryId id) {
    for (std::size_t i = 0; i < capacity_; ++i) {
      const Request& request = requests_[i];
      if (request.is_used && !request.put.is_done() && request.target == id) return false;
    }
    connection_->forget(id);
    return true;
  });
}

Status SendComm::send_owed() {
  while (!owed_.empty()) {
    DUNLIN_TRY(connection_->send(owed_.front().encode()));
    owed_.pop_front();
  }
  return Status::ok();
}

void SendComm::advance() {
  Comm::advance();
  if (!forgotten_.empty()) forget_memory();
  if (Status status = send_owed(); !status.is_ok() && !status.is_busy()) fail(std::move(status));
}

void SendComm::tell(Message::Kind kind, Receive& receive, std::size_t index, std::size_t size) {
  owed_.push_back({.kind = kind,
                   .index = static_cast<std::uint8_t>(index),
                   .receive = receive.place,
                   .number = size});
  ++messages_;
  receive.is_taken[index] = true;
  // The receive is gone after this.
  if (++receive.taken == receive.buffers.size()) receives_.pop_front();
}

Status SendComm::put(const Memory& memory, std::size_t offset, std::size_t size, const Buffer& to,
                     Request& request) {
  request.target = MemoryId(to.memory);
  DUNLIN_ASSIGN(transport::RemoteRegion* const region, connection_->remote(request.target));
  DUNLIN_ASSIGN(const auto target, region->slice(to.offset, size));
  DUNLIN_ASSIGN(const auto source, connection_->local(memory.id, offset, size));
  return connection_->lane().put(source, target, &request.put);
}

Result<Request*> SendComm::send(void* data, std::size_t size, int tag, void* handle) {
  const std::lock_guard lock(endpoint_->mutex);
  advance();
  DUNLIN_TRY(Status(failure_));
  if (connection_->status().is_error()) return connection_->status();
  Memory* const memory = find(handle);
  std::size_t offset = 0;
  if (size > 0) {
    if (memory == nullptr)
      return Status(Code::kInvalidArgument, "the memory to send from is not registered");
    DUNLIN_ASSIGN(offset, memory->offset_of(data, size));
  }
  if (receives_.empty()) return nullptr;
  Receive& receive = receives_.front();
  std::size_t index = 0;
  while (index < receive.buffers.size() &&
         (receive.is_taken[index] || receive.buffers[index].tag != tag))
    ++index;
  if (index == receive.buffers.size()) return nullptr;
  Request* const request = free_request();
  if (request == nullptr) return nullptr;

  const Buffer to = receive.buffers[index];
  if (size > to.size) {
    tell(Message::Kind::kRefused, receive, index, size);
    if (Status status = send_owed(); status.is_error()) fail(std::move(status));
    return Status(Code::kInvalidArgument,
                  fmt::format("{} bytes with the tag {} were sent, and the peer's buffer has {}",
                              size, tag, to.size));
  }
  request->put.reset();
  if (size == 0) {
    request->put.fire(Status::ok());
  } else {
    Status status = put(*memory, offset, size, to, *request);
    if (status.is_busy()) return nullptr;
    if (!status.is_ok()) {
      fail(std::move(status));
      return Status(failure_);
    }
  }
  request->is_used = true;
  request->count = 1;
  request->sizes[0] = size;
  request->memories[0] = memory;
  request->has_arrived[0] = false;
  tell(Message::Kind::kArrived, receive, index, size);
  request->message = messages_;
  if (Status status = send_owed(); status.is_error()) fail(std::move(status));
  return request;
}

}  // namespace dunlin::nccl
