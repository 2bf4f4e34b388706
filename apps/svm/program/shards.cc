#include "apps/svm/program/shards.h"

#include <algorithm>
#include <chrono>

#include "apps/svm/program/data.h"

namespace dunlin::svm {
namespace {

void append(Dataset& set, const Dataset& part) {
  const std::uint64_t offset = set.indices.size();
  for (std::size_t i = 1; i < part.row_begin.size(); ++i)
    set.row_begin.push_back(offset + part.row_begin[i]);
  set.indices.insert(set.indices.end(), part.indices.begin(), part.indices.end());
  set.values.insert(set.values.end(), part.values.begin(), part.values.end());
  set.labels.insert(set.labels.end(), part.labels.begin(), part.labels.end());
}

}  // namespace

std::vector<Holding> share_out(std::uint32_t shards, std::vector<Holding> holdings) {
  std::vector<bool> has_owner(shards);
  for (const Holding& each : holdings) has_owner[each.own] = true;
  std::vector<bool> is_adopted(shards);
  for (Holding& each : holdings) {
    std::erase_if(each.adopted, [&](std::uint32_t shard) {
      if (has_owner[shard] || is_adopted[shard]) return true;
      is_adopted[shard] = true;
      return false;
    });
  }
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    if (has_owner[shard] || is_adopted[shard]) continue;
    const auto least = std::ranges::min_element(
        holdings, {}, [](const Holding& each) { return each.adopted.size(); });
    least->adopted.insert(std::ranges::upper_bound(least->adopted, shard), shard);
  }
  return holdings;
}

Result<Shards> Shards::load(const Options& options, std::uint32_t own, std::uint32_t count) {
  Shards shards(options);
  shards.count_ = count;
  shards.holding_.own = own;
  DUNLIN_ASSIGN(shards.own_, load_shard(options, {own, count}));
  return shards;
}

void Shards::adopt(std::vector<std::uint32_t> adopted) {
  if (adopted == holding_.adopted) return;
  holding_.adopted = std::move(adopted);
  if (holding_.adopted.empty() || loading_) return;  // refresh() sees to it
  loaded_for_ = holding_.adopted;
  loading_ = std::async(
      std::launch::async,
      [options = options_, count = count_, wanted = loaded_for_]() -> Result<std::vector<Dataset>> {
        std::vector<Dataset> parts;
        for (const std::uint32_t shard : wanted) {
          DUNLIN_ASSIGN(parts.emplace_back(), load_shard(*options, {shard, count}));
        }
        return parts;
      });
}

Result<bool> Shards::refresh() {
  if (holding_.adopted.empty() && joined_) {
    joined_.reset();
    return true;
  }
  if (loading_ && loading_->wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    auto parts = loading_->get();
    loading_.reset();
    if (loaded_for_ != holding_.adopted) {
      adopt(std::exchange(holding_.adopted, {}));
    } else {
      DUNLIN_TRY(parts.status());
      joined_ = own_;
      for (const Dataset& part : *parts) append(*joined_, part);
      return true;
    }
  }
  return false;
}

}  // namespace dunlin::svm
