#include "bindings/nccl/comm.h"

#include <fmt/format.h>

#include <utility>

#include "bindings/nccl/log.h"

namespace dunlin::nccl {

Result<std::size_t> Memory::offset_of(const void* at, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  if (address < begin || address - begin > size || bytes > size - (address - begin)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} bytes at {} do not lie within the {} registered bytes at {}",
                              bytes, at, size, static_cast<const void*>(data)));
  }
  return address - begin;
}

Comm::Comm(std::shared_ptr<SharedEndpoint> endpoint,
           std::unique_ptr<transport::Connection> connection, std::size_t requests)
    : endpoint_(std::move(endpoint)),
      connection_(std::move(connection)),
      capacity_(requests),
      requests_(std::make_unique<Request[]>(requests)) {
  for (std::size_t i = 0; i < capacity_; ++i) requests_[i].comm = this;
}

Comm::~Comm() {
  endpoint_->end({&connection_, 1});
}

void Comm::detach() {
  const std::lock_guard lock(endpoint_->mutex);
  if (is_sending()) connection_->lane().close();
  for (const auto& [key, memory] : memories_) (void)endpoint_->endpoint->deregister(memory->id);
  memories_.clear();
}

Result<Memory*> Comm::add_memory(void* data, std::size_t size, std::shared_ptr<GpuDriver> gpu) {
  const std::lock_guard lock(endpoint_->mutex);
  if (data == nullptr || size == 0)
    return Status(Code::kInvalidArgument, "memory without an address or a size");
  auto memory = std::make_unique<Memory>();
  memory->data = static_cast<std::byte*>(data);
  memory->size = size;
  DUNLIN_ASSIGN(memory->id, endpoint_->endpoint->register_memory(data, size, std::move(gpu)));
  // So that an error shows here, and the first send or receive need not register.
  if (auto slice = connection_->local(memory->id, 0, size);
      !slice && connection_->status().is_ok()) {
    (void)endpoint_->endpoint->deregister(memory->id);
    return std::move(slice).status();
  }
  Memory* const made = memory.get();
  memories_.emplace(made, std::move(memory));
  return made;
}

Status Comm::remove_memory(Memory* memory) {
  const std::lock_guard lock(endpoint_->mutex);
  const auto found = memories_.find(memory);
  if (found == memories_.end())
    return {Code::kInvalidArgument, "this memory is not registered with this connection"};
  for (std::size_t i = 0; i < capacity_; ++i) {
    const Request& request = requests_[i];
    for (int at = 0; request.is_used && at < request.count; ++at) {
      if (request.memories[at] != memory || request.has_arrived[at] || request.put.is_done())
        continue;
      connection_->lane().close();
      fail(Status(Code::kInvalidArgument, "memory was deregistered while it was in use"));
    }
  }
  const transport::MemoryId id = found->second->id;
  Status status = endpoint_->endpoint->deregister(id);
  memories_.erase(found);
  on_removed(id);
  return status;
}

Memory* Comm::find(void* memory) const {
  const auto found = memories_.find(memory);
  return found == memories_.end() ? nullptr : found->second.get();
}

Request* Comm::free_request() {
  for (std::size_t i = 0; i < capacity_; ++i) {
    if (!requests_[i].is_used) return &requests_[i];
  }
  return nullptr;
}

void Comm::fail(Status why) {
  if (failure_.is_error()) return;
  failure_ = std::move(why);
  (void)report(failure_);
}

void Comm::advance() {
  connection_->progress();
  while (auto bytes = connection_->receive()) {
    auto message = Message::decode(*bytes);
    Status status = message ? take(std::move(*message))
                            : Status(Code::kCorrupted, "a malformed message of the peer");
    if (!status.is_ok()) return fail(std::move(status));
  }
}

Result<bool> Comm::test(Request* request, int* sizes) {
  const std::lock_guard lock(endpoint_->mutex);
  if (!request->is_used)
    return Status(Code::kInvalidArgument, "a request that is not in use was tested");
  advance();
  if (!is_done(*request)) {
    if (!failure_.is_error() && connection_->status().is_error())
      fail(Status(connection_->status()).with_context("a transfer was in progress"));
    if (!failure_.is_error()) return false;
    // The transport may write the completion until the lane has been closed.
    connection_->lane().close();
    request->is_used = false;
    return Status(failure_);
  }
  Status status = outcome(*request);
  request->is_used = false;
  if (!status.is_ok()) {
    fail(Status(status));
    return status;
  }
  for (int i = 0; sizes != nullptr && i < request->count; ++i)
    sizes[i] = static_cast<int>(request->sizes[i]);
  return true;
}

}  // namespace dunlin::nccl
