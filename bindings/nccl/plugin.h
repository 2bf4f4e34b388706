// Plugin: what the functions in entry.cc share: the devices, the connections that are being made,
// and the comms and groups that are ending. NCCL passes no context to most functions, so there is
// one per process, which is never destroyed. Any thread.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bindings/nccl/connecting.h"
#include "bindings/nccl/device.h"
#include "bindings/nccl/one_sided/group.h"

namespace dunlin::nccl {

class Plugin {
 public:
  static Plugin& instance();

  // Finds the devices at the first call. All messages go to the last logger.
  Status init(abi::Logger logger);
  // The same for a communicator of NCCL, which calls end_context() at its end. The last one to end
  // waits for what is left of all.
  Status begin_context(abi::Logger logger);
  void end_context();
  int device_count() const;
  // kOutOfRange if there is none. Devices stay.
  Result<const Device*> device(int number) const;
  // Whether all devices reach GPU memory.
  bool reaches_gpus() const;
  // The driver of the GPUs. kUnavailable if there is none.
  Result<std::shared_ptr<GpuDriver>> gpu() const;
  Connector& connector() { return connector_; }

  // Ends the comm on a thread of its own: an orderly end waits for the peer, and NCCL closes one
  // comm after the other, in an order of its own in each process. This end stops using the
  // registered memory at once; detach() of both classes says what may still arrive there.
  void close(std::unique_ptr<Comm> comm);
  void close(std::unique_ptr<Group> group);
  // Waits until all that was closed has ended.
  void await_ends();

 private:
  Plugin() = default;
  // Destroys what is given on a thread. (A shared_ptr: it knows how.)
  void end(std::shared_ptr<void> ending);

  mutable std::mutex mutex_;
  std::vector<Device> devices_;
  Result<std::shared_ptr<GpuDriver>> gpu_ = Status(Code::kUnavailable, "NCCL has not called init");
  Connector connector_;
  // A thread that ends a connection, and whether it has done so.
  struct End {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> is_over;
  };
  std::list<End> ends_;
  std::atomic<int> contexts_{0};
};

}  // namespace dunlin::nccl
