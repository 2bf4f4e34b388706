#include "collectives/rma/mutex_protocol.h"

#include <fmt/format.h>

namespace dunlin::collective {

Status HolderFences::require(const MutexMembers& members, std::size_t place) {
  State& state = states_[place];
  Fences& fences = members.fabric.bootstrap().fences();
  if (!state.is_done && state.number == 0) {
    std::vector<Rank> owners;
    for (const MutexMember& member : members.members) owners.push_back(member.rank);
    state.number = fences.ask(members.members[place].rank, owners);
  }
  // Before the fence: it may be done just before the coordinator is gone.
  Status coordinator = fences.check_coordinator();
  state.is_done = state.is_done || fences.is_done(state.number);
  pending_ = state.is_done ? std::nullopt : std::optional(place);
  if (state.is_done) return Status::ok();
  DUNLIN_TRY(std::move(coordinator)
                 .with_context(
                     fmt::format("mutex '{}': its holder, rank {}, is gone and cannot be shut out",
                                 members.name, members.members[place].rank.value())));
  return Status::busy();
}

}  // namespace dunlin::collective
