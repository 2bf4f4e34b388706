#include "bindings/nccl/connecting.h"

#include <algorithm>
#include <utility>

#include "runtime/log.h"

namespace dunlin::nccl {

Result<std::unique_ptr<ListenComm>> ListenComm::create(const Config& config) {
  DUNLIN_ASSIGN(auto endpoint, SharedEndpoint::create(config, false));
  return std::unique_ptr<ListenComm>(new ListenComm(std::move(endpoint)));
}

ListenComm::~ListenComm() {
  endpoint_->end(arriving_);
}

Result<std::span<const std::byte>> blob_of(const Handle& handle) {
  const auto size = static_cast<std::size_t>(handle[0]);
  if (size >= handle.size()) return Status(Code::kCorrupted, "the handle is not one of Dunlin's");
  return std::span(handle).subspan(1, size);
}

Result<Handle> ListenComm::handle() const {
  const Bytes& blob = endpoint_->endpoint->blob();
  Handle handle{};
  if (blob.size() >= handle.size())
    return Status(Code::kInternal, "the address of the endpoint is too long for a handle");
  handle[0] = static_cast<std::byte>(blob.size());
  std::copy(blob.begin(), blob.end(), handle.begin() + 1);
  return handle;
}

Result<std::unique_ptr<ReceiveComm>> ListenComm::accept() {
  const std::lock_guard lock(endpoint_->mutex);
  while (auto connection = endpoint_->endpoint->accept())
    arriving_.push_back(std::move(connection));
  for (auto at = arriving_.begin(); at != arriving_.end(); ++at) {
    (*at)->progress();
    if ((*at)->status().is_busy()) continue;
    auto connection = std::move(*at);
    arriving_.erase(at);
    DUNLIN_TRY(Status(connection->status()).with_context("a peer that was connecting"));
    DUNLIN_INFO("a peer has connected, over {}", connection->transport());
    return std::make_unique<ReceiveComm>(endpoint_, std::move(connection));
  }
  return std::unique_ptr<ReceiveComm>();
}

Result<Connector::Attempt> Connector::begin(const Config& config, const Handle& handle) {
  DUNLIN_ASSIGN(const auto blob, blob_of(handle));
  Attempt attempt;
  // Nobody connects to this endpoint.
  DUNLIN_ASSIGN(attempt.endpoint, SharedEndpoint::create(config, true));
  DUNLIN_ASSIGN(attempt.connection, attempt.endpoint->endpoint->connect(blob, {}));
  return attempt;
}

void Connector::end(Attempt attempt) {
  attempt.endpoint->end({&attempt.connection, 1});
}

Result<std::unique_ptr<SendComm>> Connector::connect(const Config& config, const Handle& handle) {
  const std::lock_guard lock(mutex_);
  const std::pair key(&config, handle);
  auto found = attempts_.find(key);
  if (found == attempts_.end()) {
    DUNLIN_ASSIGN(auto attempt, begin(config, handle));
    found = attempts_.emplace(key, std::move(attempt)).first;
  }
  Status status;
  {
    Attempt& attempt = found->second;
    const std::lock_guard guard(attempt.endpoint->mutex);
    attempt.connection->progress();
    status = attempt.connection->status();
  }
  if (status.is_busy()) return std::unique_ptr<SendComm>();
  Attempt attempt = std::move(found->second);
  attempts_.erase(found);
  if (!status.is_ok()) {
    end(std::move(attempt));
    return std::move(status).with_context("connecting to a peer");
  }
  DUNLIN_INFO("connected to a peer, over {}", attempt.connection->transport());
  return std::make_unique<SendComm>(std::move(attempt.endpoint), std::move(attempt.connection));
}

void Connector::clear() {
  // Their ends may take seconds, in which nobody should wait for the lock.
  decltype(attempts_) left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(attempts_);
  }
  for (auto& [key, attempt] : left) end(std::move(attempt));
}

}  // namespace dunlin::nccl
