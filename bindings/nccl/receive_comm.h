// ReceiveComm: the receiving end of a connection of NCCL.
#pragma once

#include <deque>
#include <span>

#include "bindings/nccl/comm.h"

namespace dunlin::nccl {

// What NCCL gives of one buffer of a receive.
struct Target {
  void* data;
  std::size_t size;
  int tag;
  void* memory;
};

class ReceiveComm final : public Comm {
 public:
  ReceiveComm(std::shared_ptr<SharedEndpoint> endpoint,
              std::unique_ptr<transport::Connection> connection);

  // Announces the buffers, at most kMaxGroup, to the peer. Null if too much is in progress: NCCL
  // tries again.
  Result<Request*> receive(std::span<const Target> targets);

 private:
  Status take(Message message) override;
  bool is_done(Request& request) const override;
  Status outcome(Request& request) override;
  void on_removed(transport::MemoryId id) override;
  void advance() override;
  Status send_owed();

  std::deque<Message> owed_;  // of memory that has been deregistered
};

}  // namespace dunlin::nccl
