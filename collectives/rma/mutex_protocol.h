// MutexProtocol: how members of a DistributedMutex come to an agreement; mutex.h chooses one of
// two. Owner thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/rma/mutex.h"
#include "transports/fabric.h"

namespace dunlin::collective {

// A member as the others know it. Its place is its index among the members.
struct MutexMember {
  Rank rank;
  // On its board: cells for what each member tells it, in the order of their places.
  transport::NotifyId first_cell{};
  transport::Link* link = nullptr;  // where the protocol needs one; to ourselves: null
};

struct MutexMembers {
  transport::Fabric& fabric;
  std::string name;
  std::vector<MutexMember> members;
  std::size_t self = 0;  // places
  std::size_t home = 0;

  bool is_present(std::size_t place) const {
    return place < members.size() && fabric.peers().is_present(members[place].rank);
  }
  // Our cell that only this member writes.
  transport::NotifyId cell_of(std::size_t writer) const {
    return transport::cell_at(members[self].first_cell, static_cast<std::uint32_t>(writer));
  }
  // The cell at this member that only we write.
  transport::NotifyId cell_at(std::size_t place) const {
    return transport::cell_at(members[place].first_cell, static_cast<std::uint32_t>(self));
  }
};

class MutexProtocol {
 public:
  enum class State : std::uint8_t { kIdle, kWaiting, kHeld, kReleasing };

  virtual ~MutexProtocol() = default;
  virtual State state() const = 0;
  virtual LockOutcome outcome() const = 0;  // while held
  virtual bool is_managed() const = 0;
  // From kIdle to kWaiting.
  virtual void want() = 0;
  // From kWaiting or kHeld to kReleasing, and by itself to kIdle. `has_heard`: of the outcome; else
  // the next owner is told of a death.
  virtual void release(bool has_heard) = 0;
  // Errors stay.
  virtual Status progress() = 0;
  // Whose death would leave us waiting in vain; none: no one's.
  virtual std::optional<Rank> awaited() const = 0;
  // When progress() wants to be called again, though nothing has come.
  virtual std::optional<TimePoint> next_event() const { return std::nullopt; }
};

}  // namespace dunlin::collective
