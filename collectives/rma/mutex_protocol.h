// MutexProtocol: how the members of a DistributedMutex agree on its holder. There are two ways,
// MutexWords and MutexManager; mutex.h says which is used when. Owner thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/rma/mutex.h"
#include "transports/fabric.h"

namespace dunlin::collective {

// A member as the other members know it. Its place is its index among the members.
struct MutexMember {
  Rank rank;
  // Cells on its board, one for each member, in the order of their places. The member writes it.
  transport::NotifyId first_cell{};
  transport::Link* link = nullptr;  // null where the protocol needs none, and for this rank itself
};

struct MutexMembers {
  transport::Fabric& fabric;
  std::string name;
  std::vector<MutexMember> members;
  std::size_t self = 0;         // this rank's place
  std::size_t owner_place = 0;  // the owner rank's place

  bool is_present(std::size_t place) const {
    return place < members.size() && fabric.peers().is_present(members[place].rank);
  }
  // The cell on this rank's board that only member `writer` writes.
  transport::NotifyId cell_of(std::size_t writer) const {
    return transport::cell_at(members[self].first_cell, static_cast<std::uint32_t>(writer));
  }
  // The cell on that member's board that only this rank writes.
  transport::NotifyId cell_at(std::size_t place) const {
    return transport::cell_at(members[place].first_cell, static_cast<std::uint32_t>(self));
  }
};

// The fences around former holders that are gone. Before the next member gets the mutex from such a
// holder, no write of that holder may be able to land at any member: it may live, and what it has
// sent may still be on its way.
class HolderFences {
 public:
  explicit HolderFences(const MutexMembers& members) : states_(members.members.size()) {}

  // Asks for the fence around the member at `place`, which is gone. Returns kBusy until it is done,
  // then ok. Returns kUnavailable if the coordinator is gone, since no fence is possible then.
  Status require(const MutexMembers& members, std::size_t place);
  // The member whose fence was required last and is not done.
  std::optional<std::size_t> pending() const { return pending_; }

 private:
  struct State {
    std::uint64_t number = 0;  // 0: not asked for
    bool is_done = false;
  };
  std::vector<State> states_;  // by place
  std::optional<std::size_t> pending_;
};

class MutexProtocol {
 public:
  enum class State : std::uint8_t { kIdle, kWaiting, kHeld, kReleasing };

  virtual ~MutexProtocol() = default;
  virtual State state() const = 0;
  virtual LockOutcome outcome() const = 0;  // valid in kHeld
  virtual bool is_managed() const = 0;
  // Whether no rank needs this rank's progress() before its next call. In kIdle, a grant may still
  // be on its way that has to be handed on.
  virtual bool is_quiet() const = 0;
  // Leads from kIdle to kWaiting.
  virtual void want() = 0;
  // Leads from kWaiting or kHeld to kReleasing; progress() then leads to kIdle. `has_heard`: the
  // caller was told the outcome. If not, the next holder is told of a death.
  virtual void release(bool has_heard) = 0;
  // Returns the first error of all calls.
  virtual Status progress() = 0;
  // The rank whose death would end the wait; nullopt: there is no such rank.
  virtual std::optional<Rank> awaited() const = 0;
  // The member that is gone and has to be fenced before this rank gets on.
  virtual std::optional<Rank> fenced() const = 0;
  // When to call progress() again even if nothing arrives; nullopt: no such time.
  virtual std::optional<TimePoint> next_event() const { return std::nullopt; }
};

}  // namespace dunlin::collective
