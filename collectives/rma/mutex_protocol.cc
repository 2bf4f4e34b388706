#include "collectives/rma/mutex_protocol.h"

namespace dunlin::collective {

Status HolderFences::require(const MutexMembers& members, std::size_t place) {
  State& state = states_[place];
  Fences& fences = members.fabric.bootstrap().fences();
  if (!state.is_done && state.number == 0) {
    std::vector<Rank> owners;
    for (const MutexMember& member : members.members) owners.push_back(member.rank);
    state.number = fences.ask(members.members[place].rank, owners);
  }
  state.is_done = state.is_done || fences.is_done(state.number);
  pending_ = state.is_done ? std::nullopt : std::optional(place);
  return state.is_done ? Status::ok() : Status::busy();
}

}  // namespace dunlin::collective
