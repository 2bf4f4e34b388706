#include "collectives/elastic/model_snapshot.h"

#include <dunlin/elastic.h>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/cpp/internal.h"

namespace dunlin {
namespace {

// Which members are new, in their order.
Result<std::vector<bool>> share_newness(Bootstrap& bootstrap, const JobMembers& members,
                                        const std::string& name, bool is_new, Duration timeout) {
  const auto key = [&](Rank rank) { return fmt::format("{}/is-new/{}", name, rank.value()); };
  const auto flag = static_cast<std::uint8_t>(is_new ? 1 : 0);
  DUNLIN_TRY(bootstrap.publish(key(bootstrap.rank()), ByteWriter().number(flag).take()));
  std::vector<bool> all;
  for (const Rank rank : members.ranks) {
    DUNLIN_ASSIGN(const Bytes theirs, bootstrap.lookup_from(rank, key(rank), timeout));
    all.push_back(ByteReader(theirs).number<std::uint8_t>() != 0);
  }
  return all;
}

// The next member behind that at `place` which is not new. There is one.
Rank source_for(std::size_t place, const JobMembers& members, const std::vector<bool>& is_new) {
  do {
    place = (place + 1) % members.ranks.size();
  } while (is_new[place]);
  return members.ranks[place];
}

}  // namespace

Result<std::uint64_t> share_model(Job& job, const JobMembers& members, std::span<std::byte> model,
                                  std::uint64_t version, bool is_new, Duration timeout) {
  transport::Fabric& fabric = Internal::fabric(job);
  Bootstrap& bootstrap = fabric.bootstrap();
  const std::string name = fmt::format("dunlin/share-model/{}", members.epoch);
  DUNLIN_ASSIGN(const std::vector<bool> newness,
                share_newness(bootstrap, members, name, is_new, timeout));
  const bool has_source = std::ranges::find(newness, false) != newness.end();
  std::unique_ptr<collective::ModelSnapshot> offered;
  for (std::size_t place = 0; has_source && place < newness.size(); ++place) {
    if (!newness[place]) continue;
    const Rank source = source_for(place, members, newness);
    if (members.ranks[place] == job.rank()) {
      DUNLIN_ASSIGN(version,
                    collective::ModelSnapshot::fetch(fabric, name, source, model, timeout));
    } else if (source == job.rank() && !offered) {
      DUNLIN_ASSIGN(offered, collective::ModelSnapshot::offer(fabric, name, model, version));
    }
  }
  DUNLIN_TRY(bootstrap.barrier(name, timeout));
  return version;
}

}  // namespace dunlin
