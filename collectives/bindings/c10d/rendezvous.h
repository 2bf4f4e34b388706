// How the members of a process group find one another: through the store that PyTorch hands to each
// of them, whatever launcher has started them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bindings/runtime.h"

namespace dunlin::torch_backend {

// What is used of a c10d::Store, whose keys are the group's own. The functions throw what the store
// throws, and none of them waits: a store that waits in one thread keeps all others out.
struct KeyValueStore {
  std::function<void(const std::string& key, const std::string& value)> set;
  std::function<std::string(const std::string& key)> get;  // that is there
  std::function<bool(const std::string& key)> has;
  std::function<std::int64_t(const std::string& key, std::int64_t value)> add;
  Duration timeout{};  // for what the others put there
  // Anything but ok ends the wait for them, with that.
  binding::Runtime::Interrupt interrupt;
};

struct GroupPlace {
  int rank = 0;
  int size = 1;
};

struct Membership {
  std::shared_ptr<binding::Runtime> runtime;  // entered: SharedRuntime
  binding::CommunicatorHandle communicator;
  std::vector<Rank> ranks;  // in the job, by rank in the group
  std::string name;         // the same on all members, and no other group's
};

// Collective over the members of the group; needs nobody else. They use the process's runtime where
// all have one; else they join the job of dunlin-run where that is the group; else the first one
// hosts the coordinator of a new job, at an address that it tells with the job's secret in the
// store.
Result<Membership> meet(const KeyValueStore& store, GroupPlace place);

}  // namespace dunlin::torch_backend
