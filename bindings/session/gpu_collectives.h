// GpuCollectives: the collectives of a communicator on memory of a GPU, of any owner.
//
// They run on a communicator of GPUs (communicator.h) with the same members, which the first call
// makes. A short call copies its memory to host memory and back (gpu_staging.h). In other calls,
// memory from allocate() is used in place, and other memory is copied within the GPU on the way in
// and on the way out. It is neither registered nor opened by peers. A transport between two hosts
// may copy to host memory, too.
//
// Calls on host memory and calls on GPU memory are matched separately. All members of a
// communicator make the same calls on GPU memory in the same order. Each member uses one GPU.
#pragma once

#include <functional>
#include <memory>

#include "bindings/session/gpu_staging.h"
#include "bindings/session/session.h"

namespace dunlin::binding {

// Threads: any. The session has to outlive it.
class GpuCollectives {
 public:
  // Returns the one of this communicator of host memory, for the GPU `device` of this process.
  // kInvalidArgument if it uses another device. The members' first call is collective: it waits
  // until all of them have made theirs, for Config::deadline at most. An error at one member is
  // then an error at all. kUnavailable, if a member has no driver, no kernels for its GPU, or no
  // transport for its memory, is the answer to all later calls, too. A member that makes a call on
  // host memory meanwhile is kInvalidArgument at all members.
  static Result<std::shared_ptr<GpuCollectives>> of(Session& session,
                                                    const CommunicatorHandle& communicator,
                                                    int device,
                                                    const Session::Interrupt& interrupt);

  int device() const { return device_; }
  const CommunicatorHandle& gpus() const { return staging_->gpus(); }
  const std::shared_ptr<GpuStaging>& staging() const { return staging_; }

  // Starts a call and returns at once, whatever the streams do that the call's events belong to.
  // Input and output are memory of the device. They belong to the operation until it is over. When
  // it is over, the output is complete for all streams. Once a member is dead, this and all later
  // calls end with kPeerDead. An error of the GPU ends all calls of this member, too. `when_over`
  // goes to SessionOperation::when_over().
  Result<std::shared_ptr<SessionOperation>> start(GpuCall call,
                                                  std::function<void()> when_over = {});
  // start(), then waits for Config::deadline. `unfinished`: as for Session::run().
  Status run(GpuCall call, const Session::Interrupt& interrupt,
             std::shared_ptr<SessionOperation>* unfinished);

  // An event for GpuCall: the work that a stream of the device has now. It has to be dropped, or
  // given to a call, before the session ends.
  Result<std::shared_ptr<GpuEvent>> event_after(NativeGpuStream stream);

  // Collective. Memory of the device that calls use without copies, but for reduces and short
  // calls. All members have to pass memory of the same allocation at the same offset there, or none
  // may. Its contents are undefined.
  Result<SharedMemory> allocate(std::size_t bytes, const Session::Interrupt& interrupt) {
    return session_.allocate(gpus(), bytes, interrupt);
  }
  Status free(std::span<std::byte> memory, const Session::Interrupt& interrupt) {
    return session_.free(gpus(), memory, interrupt);
  }
  // Collective. Waits until all calls are over at all members, and drops the memory.
  // Session::release() calls it.
  Status release(const Session::Interrupt& interrupt);

 private:
  class Operation;
  GpuCollectives(Session& session, std::shared_ptr<GpuDriver> driver, int device,
                 std::shared_ptr<GpuStaging> staging)
      : session_(session),
        driver_(std::move(driver)),
        device_(device),
        staging_(std::move(staging)) {}
  static Result<std::shared_ptr<GpuCollectives>> create(Session& session,
                                                        const CommunicatorHandle& communicator,
                                                        int device,
                                                        const Session::Interrupt& interrupt);
  // The result uses `call` and `when_over`, which outlive it.
  Session::Make maker(GpuCall& call, std::function<void()>& when_over) const;

  Session& session_;
  std::shared_ptr<GpuDriver> driver_;
  int device_;
  std::shared_ptr<GpuStaging> staging_;
};

}  // namespace dunlin::binding
