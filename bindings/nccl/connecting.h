// How comms come into being: a listener, to which a peer's handle leads, and the connections that
// are being made. Nothing here blocks: NCCL calls again until there is a comm.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "bindings/nccl/receive_comm.h"
#include "bindings/nccl/send_comm.h"

namespace dunlin::nccl {

// What NCCL carries to the peer: the size of the endpoint's blob, and the blob.
using Handle = std::array<std::byte, abi::kHandleBytes>;

// kCorrupted if the handle is not one of Dunlin's.
Result<std::span<const std::byte>> blob_of(const Handle& handle);

class ListenComm {
 public:
  static Result<std::unique_ptr<ListenComm>> create(const Config& config);
  ~ListenComm();

  Result<Handle> handle() const;
  const std::shared_ptr<SharedEndpoint>& endpoint() const { return endpoint_; }
  // The next connection of a peer; null if there is none yet.
  Result<std::unique_ptr<ReceiveComm>> accept();

 private:
  explicit ListenComm(std::shared_ptr<SharedEndpoint> endpoint) : endpoint_(std::move(endpoint)) {}

  std::shared_ptr<SharedEndpoint> endpoint_;
  std::vector<std::unique_ptr<transport::Connection>> arriving_;
};

// The connections that this process makes, by handle: NCCL passes no more than that. Calls with
// equal handles share an attempt, and whichever call comes when it has succeeded gets it.
// Any thread.
class Connector {
 public:
  // Null while the connection is being made.
  Result<std::unique_ptr<SendComm>> connect(const Config& config, const Handle& handle);
  // Gives up what was not finished.
  void clear();

 private:
  struct Attempt {
    std::shared_ptr<SharedEndpoint> endpoint;
    std::unique_ptr<transport::Connection> connection;
  };
  static Result<Attempt> begin(const Config& config, const Handle& handle);
  static void end(Attempt attempt);

  std::mutex mutex_;
  std::map<std::pair<const Config*, Handle>, Attempt> attempts_;
};

}  // namespace dunlin::nccl
