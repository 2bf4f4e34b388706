// SendComm: the sending end of a connection of NCCL.
#pragma once

#include <deque>
#include <vector>

#include "bindings/nccl/comm.h"

namespace dunlin::nccl {

class SendComm final : public Comm {
 public:
  SendComm(std::shared_ptr<SharedEndpoint> endpoint,
           std::unique_ptr<transport::Connection> connection);

  // Sends to the oldest receive of which a buffer awaits data, into a buffer with this tag. Null if
  // there is none yet, or too much is in progress: NCCL tries again. kInvalidArgument if the buffer
  // is too small; then the receive ends with an error, too.
  Result<Request*> send(void* data, std::size_t size, int tag, void* memory);

 private:
  // A receive of the peer.
  struct Receive {
    std::uint16_t place;
    std::vector<Buffer> buffers;
    std::vector<bool> is_taken;
    std::size_t taken = 0;
  };

  Status take(Message message) override;
  // The data may be here when the message about them still waits for a free slot at the peer.
  bool is_done(Request& request) const override {
    return request.put.is_done() &&
           request.message + owed_.size() + connection_->unsent() <= messages_;
  }
  Status outcome(Request& request) override { return request.put.status(); }
  bool is_sending() const override;
  void advance() override;
  // kBusy if the put has to be tried again.
  Status put(const Memory& memory, std::size_t offset, std::size_t size, const Buffer& to,
             Request& request);
  void tell(Message::Kind kind, Receive& receive, std::size_t index, std::size_t size);
  Status send_owed();
  void forget_memory();

  std::deque<Receive> receives_;                // that await data
  std::deque<Message> owed_;                    // to the peer, behind what was put
  std::uint64_t messages_ = 0;                  // to the peer, those in owed_ included
  std::vector<transport::MemoryId> forgotten_;  // by the peer
};

}  // namespace dunlin::nccl
