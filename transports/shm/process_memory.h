// Access to memory of another process that is not shared, by process_vm_writev(2) and
// process_vm_readv(2) (cross-memory attach, CMA), or by its /proc/PID/mem (peer_process.h).
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/rank.h"
#include "runtime/status.h"
#include "transports/completion.h"
#include "transports/shm/busy_queues.h"
#include "transports/shm/peer_process.h"

namespace dunlin::transport::shm {

// Lets other processes of this user access this one's memory, where Linux's Yama module forbids it
// otherwise. Does it once per process.
void allow_process_memory_access();

// The puts and gets of a lane that access the peer's memory by system calls. They are gathered, and
// carried out up to 1,024 at a time: when enough have been gathered, when the lane needs them to be
// done, or at the next progress(). Owner thread only.
class ProcessMemoryQueue final : private BusyQueue {
 public:
  enum class Direction : std::uint8_t { kPut, kGet };
  // Learns whether operations wait, so that no notification overtakes them.
  class Owner {
   public:
    virtual void hold_for_process_memory(bool is_held) = 0;

   protected:
    ~Owner() = default;
  };

  // `owner`, `busy` and `process` outlive the queue. `process` is that of the rank `peer`.
  ProcessMemoryQueue(Owner& owner, BusyQueues& busy, PeerProcess& process, Rank peer);
  ~ProcessMemoryQueue() { run(); }
  ProcessMemoryQueue(const ProcessMemoryQueue&) = delete;
  ProcessMemoryQueue& operator=(const ProcessMemoryQueue&) = delete;

  // `size` is more than 0. `remote` is an address of the peer. The completion may fire during the
  // call. Returns the failure of an earlier operation, if there is one.
  Status add(Direction direction, std::byte* local, std::uint64_t remote, std::size_t size,
             Completion* completion);
  // Carries out all that waits. Returns how many operations completed.
  std::size_t run();
  std::size_t progress() override { return run(); }
  bool is_empty() const { return operations_.empty(); }
  // Why a put failed. Then add() returns it, and nothing that would announce the put is published.
  // A get that fails concerns only itself and the gets that were gathered behind it.
  const Status& failure() const { return failure_; }
  std::uint64_t system_calls() const { return system_calls_; }

 private:
  struct Operation {
    Completion* completion;
    std::size_t last;  // the entry that ends it
  };

  Status transfer();
  Status check_process();
  // Completes the operations that end in the entries before `done`.
  void complete(std::size_t done);

  Owner& owner_;
  BusyQueues& busy_;
  PeerProcess& process_;
  const Rank peer_;
  Direction direction_ = Direction::kPut;
  std::vector<iovec> local_;
  std::vector<iovec> remote_;
  std::vector<Operation> operations_;
  std::size_t completed_ = 0;  // of operations_
  std::size_t bytes_ = 0;
  Status failure_;
  std::uint64_t system_calls_ = 0;
};

}  // namespace dunlin::transport::shm
