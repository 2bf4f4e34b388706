#include "collectives/elastic/model_snapshot.h"

#include <dunlin/elastic.h>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bindings/cpp/internal.h"

namespace dunlin {
namespace {

// What each member tells of itself.
constexpr std::byte kOld{0};
constexpr std::byte kNew{1};

// The next member behind that at `place` which is not new. There is one.
Rank source_for(std::size_t place, const JobMembers& members, std::span<const std::byte> is_new) {
  do {
    place = (place + 1) % members.ranks.size();
  } while (is_new[place] != kOld);
  return members.ranks[place];
}

}  // namespace

Result<std::uint64_t> share_model(Job& job, const JobMembers& members, std::span<std::byte> model,
                                  std::uint64_t version, bool is_new, Duration timeout) {
  transport::Fabric& fabric = Internal::fabric(job);
  const std::string name = fmt::format("dunlin/share-model/{}", members.epoch);
  const std::byte own = is_new ? kNew : kOld;
  DUNLIN_ASSIGN(const Bytes newness,
                fabric.bootstrap().gather(name, members.ranks, std::span(&own, 1), timeout));
  std::vector<collective::HandOver> plan;
  const bool has_source = std::ranges::find(newness, kOld) != newness.end();
  for (std::size_t place = 0; has_source && place < newness.size(); ++place) {
    if (newness[place] != kOld)
      plan.push_back({members.ranks[place], source_for(place, members, newness)});
  }
  return collective::hand_over_models(fabric, name, plan, model, version, timeout);
}

}  // namespace dunlin
