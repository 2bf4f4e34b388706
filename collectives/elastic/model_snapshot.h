// ModelSnapshot: a copy of a member's model for processes that join the job. A newcomer reads it by
// itself, with one-sided reads, while the member does something else. hand_over_models() does this
// for all members at a time.
//
//   member:    auto offer = ModelSnapshot::offer(fabric, "svm/3", bytes_of(model), exchange);
//   newcomer:  auto version = ModelSnapshot::fetch(fabric, "svm/3", member, bytes_of(model), 30s);
//
// The copy never changes, so what is read is consistent: the model as it was at its version. Over
// tcp and ucx, the member has to make progress meanwhile, as it does in every wait of the library.
// Owner thread of the fabric only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::collective {

class ModelSnapshot {
 public:
  // Copies `model` and publishes where it is. `name` is used once by this member. `version` is told
  // to those that fetch it. The copy is there until the object is destroyed: a newcomer that is
  // still reading then gets an error.
  static Result<std::unique_ptr<ModelSnapshot>> offer(transport::Fabric& fabric,
                                                      const std::string& name,
                                                      std::span<const std::byte> model,
                                                      std::uint64_t version);

  // Reads the snapshot of `member` into `model`, which has the same size, else kInvalidArgument.
  // Waits until the member has offered it. Returns the version. kPeerDead when the member dies,
  // kDeadlineExceeded after `timeout`. After an error, `model` is undefined.
  static Result<std::uint64_t> fetch(transport::Fabric& fabric, const std::string& name,
                                     Rank member, std::span<std::byte> model, Duration timeout);

 private:
  explicit ModelSnapshot(std::unique_ptr<transport::LocalRegion> memory)
      : memory_(std::move(memory)) {}

  std::unique_ptr<transport::LocalRegion> memory_;
};

// A newcomer, and the member whose model it gets.
struct HandOver {
  Rank newcomer;
  Rank source;
};

// Gives each newcomer the next member of the list that is none, in turn. `members` and `is_new`
// have the same order. Empty if all are newcomers.
std::vector<HandOver> plan_hand_overs(std::span<const Rank> members,
                                      const std::vector<bool>& is_new);

// Gives newcomers a model. Collective over the members of the epoch, all of which pass the same
// plan and a name that is used once. A source offers `model` at `version`; a newcomer reads into
// `model` that of its source. Returns when all members have called it: the version of `model`,
// which is `version` on all members but newcomers. Errors are those of fetch() and of
// Bootstrap::barrier().
Result<std::uint64_t> hand_over_models(transport::Fabric& fabric, const std::string& name,
                                       std::span<const HandOver> plan, std::span<std::byte> model,
                                       std::uint64_t version, Duration timeout);

// Does the same where only each member knows whether it is new: they tell one another, and follow
// plan_hand_overs().
Result<std::uint64_t> share_model(transport::Fabric& fabric, const std::string& name,
                                  const std::vector<Rank>& members, bool is_new,
                                  std::span<std::byte> model, std::uint64_t version,
                                  Duration timeout);

}  // namespace dunlin::collective
