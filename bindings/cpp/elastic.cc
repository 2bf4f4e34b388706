#include "collectives/elastic/model_snapshot.h"

#include <dunlin/elastic.h>

#include <fmt/format.h>

#include <vector>

#include "bindings/cpp/internal.h"

namespace dunlin {
namespace {

// What each member tells of itself.
constexpr std::byte kOld{0};
constexpr std::byte kNew{1};

}  // namespace

Result<std::uint64_t> share_model(Job& job, const JobMembers& members, std::span<std::byte> model,
                                  std::uint64_t version, bool is_new, Duration timeout) {
  transport::Fabric& fabric = Internal::fabric(job);
  const std::string name = fmt::format("dunlin/share-model/{}", members.epoch);
  const std::byte own = is_new ? kNew : kOld;
  DUNLIN_ASSIGN(const Bytes newness,
                fabric.bootstrap().gather(name, members.ranks, std::span(&own, 1), timeout));
  std::vector<bool> are_new;
  for (const std::byte each : newness) are_new.push_back(each == kNew);
  const auto plan = collective::plan_hand_overs(members.ranks, are_new);
  return collective::hand_over_models(fabric, name, plan, model, version, timeout);
}

}  // namespace dunlin
