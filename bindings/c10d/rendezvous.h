// Rendezvous: the members of a process group find one another through the store that PyTorch hands
// to each of them, under any launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/session/session.h"

namespace dunlin::torch_backend {

// The part of a c10d::Store that is used. Its keys belong to this group. The functions throw what
// the store throws. None of them waits: while a store waits in one thread it blocks all others.
struct KeyValueStore {
  std::function<void(const std::string& key, const std::string& value)> set;
  std::function<std::string(const std::string& key)> get;  // of a key that exists
  std::function<bool(const std::string& key)> has;
  std::function<std::int64_t(const std::string& key, std::int64_t value)> add;
  Duration timeout{};  // for keys of other members
  // Any status but ok ends the wait for other members, which returns it.
  binding::Session::Interrupt interrupt;
};

struct GroupPlace {
  int rank = 0;
  int size = 1;
};

struct Membership {
  std::shared_ptr<binding::Session> session;  // of SharedSession::enter()
  binding::CommunicatorHandle communicator;
  std::vector<Rank> ranks;  // in the job, by rank in the group
  std::string name;         // the same on all members, and different from other groups'
};

// Collective over the members of the group alone. If all members' processes have a session, they
// use it. Otherwise, if the group is the job that dunlin-run has started, they join that. Otherwise
// the first member hosts the coordinator of a new job, and puts its address and the job's secret
// into the store.
Result<Membership> meet(const KeyValueStore& store, GroupPlace place);

}  // namespace dunlin::torch_backend
