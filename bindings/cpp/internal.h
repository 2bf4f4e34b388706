// What the implementations of the public C++ classes share: the state behind a job, and the way
// from public handles to internal objects. Public headers never include this one.
#pragma once

#include <bit>
#include <memory>
#include <span>
#include <vector>

#include <dunlin/job.h>
#include <dunlin/memory.h>
#include <dunlin/neighbor.h>
#include <dunlin/notification.h>

#include "collectives/communicator/communicator.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/config.h"
#include "runtime/flight/recorder.h"
#include "runtime/trace.h"
#include "transports/fabric.h"

namespace dunlin {

// Objects are destroyed from the last to the first, as each uses those before it.
struct JobState {
  Config config;
  SteadyClock clock;
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<Trace> trace;
  std::unique_ptr<flight::Recorder> recorder;
  std::unique_ptr<transport::Fabric> fabric;
};

struct Internal {
  static const std::shared_ptr<JobState>& state(const Job& job) { return job.state_; }
  static transport::Fabric& fabric(const Job& job) { return *job.state_->fabric; }
  static Membership membership(const Job& job, const JobMembers& wanted) {
    if (wanted.ranks.empty()) return job.state_->bootstrap->membership();
    return {wanted.epoch, wanted.ranks};
  }

  // Slices have the same members on both sides.
  static transport::LocalSlice internal(const MemorySlice& slice) {
    return std::bit_cast<transport::LocalSlice>(slice);
  }
  static transport::RemoteSlice internal(const RemoteMemorySlice& slice) {
    return std::bit_cast<transport::RemoteSlice>(slice);
  }
  static MemorySlice external(const transport::LocalSlice& slice) {
    return std::bit_cast<MemorySlice>(slice);
  }
  static RemoteMemorySlice external(const transport::RemoteSlice& slice) {
    return std::bit_cast<RemoteMemorySlice>(slice);
  }
  static transport::Notification internal(const Notification& notification) {
    return {transport::NotifyId(static_cast<std::uint32_t>(notification.id)), notification.sequence,
            notification.tag, notification.length, notification.inline_data};
  }
  // Fills `to`, whose vectors keep their memory from call to call.
  static const collective::NeighborCall& internal(const NeighborCall& from,
                                                  collective::NeighborCall& to);

  static collective::Communicator& communicator(Communicator& handle);
  static collective::NeighborExchange& exchange(Neighbors& handle);
};

}  // namespace dunlin
