// Comm: one end of a connection as NCCL sees it, whose memory is registered and whose requests are
// tested here. SendComm and ReceiveComm add what each direction does.
//
// NCCL connects and registers memory on one thread, and sends, receives and tests on another. Each
// function takes the lock of the comm's endpoint.
//
// The protocol (messages.h): a receive announces its buffers to the sender; the sender puts the
// data there and says so. Nothing is copied, and no receive waits for a rendezvous.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "bindings/nccl/abi.h"
#include "bindings/nccl/messages.h"
#include "bindings/nccl/shared_endpoint.h"
#include "transports/completion.h"

namespace dunlin::nccl {

// Memory that NCCL has registered with a comm.
struct Memory {
  std::byte* data = nullptr;
  std::size_t size = 0;
  transport::MemoryId id{};

  Result<std::size_t> offset_of(const void* at, std::size_t bytes) const;
};

class Comm;

// What NCCL tests. The comm owns it.
struct Request {
  Comm* comm = nullptr;
  bool is_used = false;
  int count = 0;
  std::array<std::size_t, kMaxGroup> sizes{};  // sent, or received
  // Used by sends:
  transport::Completion put;
  transport::MemoryId target{};
  std::uint64_t message = 0;  // the number of the message that tells the peer
  // Used by receives:
  std::array<Memory*, kMaxGroup> memories{};
  std::array<std::size_t, kMaxGroup> offsets{};
  std::array<std::size_t, kMaxGroup> capacities{};
  std::array<bool, kMaxGroup> has_arrived{};
  bool is_refused = false;
};

class Comm {
 public:
  Comm(std::shared_ptr<SharedEndpoint> endpoint, std::unique_ptr<transport::Connection> connection,
       std::size_t requests);
  // Ends the connection, see SharedEndpoint::end().
  virtual ~Comm();

  // `gpu`: the driver of the GPU whose memory it is; null: it is the host's.
  Result<Memory*> add_memory(void* data, std::size_t size, std::shared_ptr<GpuDriver> gpu);
  // The connection ends first if it still sends from this memory.
  Status remove_memory(Memory* memory);
  // True once the request is done: then its sizes are written, and it must not be used any more.
  // So it is after an error.
  Result<bool> test(Request* request, int* sizes);
  // From now on, this end does not read or write the memory any more, and posts of the peer fail.
  // What the peer is carrying out just then may still land (transports/endpoint/endpoint.h).
  void detach();

 protected:
  virtual Status take(Message message) = 0;
  virtual bool is_done(Request& request) const = 0;
  virtual Status outcome(Request& request) = 0;
  virtual bool is_sending() const { return false; }
  // The calls below need the lock.
  virtual void on_removed([[maybe_unused]] transport::MemoryId id) {}
  // Makes progress and takes messages.
  virtual void advance();
  // Ends all requests with this error, unless there is an earlier one, and logs it.
  void fail(Status why);
  Request* free_request();
  Memory* find(void* memory) const;

  std::shared_ptr<SharedEndpoint> endpoint_;
  std::unique_ptr<transport::Connection> connection_;
  Status failure_;

  const std::size_t capacity_;
  const std::unique_ptr<Request[]> requests_;

 private:
  std::map<const void*, std::unique_ptr<Memory>> memories_;
};

}  // namespace dunlin::nccl
