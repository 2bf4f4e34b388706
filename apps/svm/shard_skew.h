// ShardSkew: how much the shards of a training set differ. Without skew, the rows are dealt to the
// ranks in turns (apps/shard.h), and all shards are alike. With it, a part of the rows is sorted by
// class or by feature and cut into one block for each rank, and the rest is dealt in turns. Hsieh,
// Phanishayee, Mutlu and Gibbons, "The Non-IID Data Quagmire of Decentralized Machine Learning"
// (ICML 2020), vary the size of that part in the same way, and call it the degree of skewness.
// Stateless; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "apps/svm/dataset.h"
#include "runtime/status.h"

namespace dunlin::svm {

struct ShardSkew {
  enum class By : std::uint8_t {
    kNone,
    kLabel,    // class -1 first
    kFeature,  // by the index of the row's strongest feature: the first of the largest magnitude
  };
  By by = By::kNone;
  double degree = 1;  // the share of the rows that is sorted; 0 to 1

  // All rows are dealt in turns.
  bool is_none() const { return by == By::kNone || degree == 0; }
  bool operator==(const ShardSkew&) const = default;
};

// "none", "label" or "feature", and unless it is 1 a colon and the degree: "label:0.5".
std::string to_string(const ShardSkew& skew);
// The reverse. kInvalidArgument says what is expected.
Result<ShardSkew> parse_shard_skew(const std::string& text);

// The rows of `whole` that fall to `shard`, in their order in the set. Each row falls to one shard,
// and a shard has as many rows as without skew. Which rows are sorted depends on their numbers
// alone. Ranks that follow one another get neighboring blocks.
Dataset skewed_shard(const Dataset& whole, const ShardSkew& skew, Shard shard);

}  // namespace dunlin::svm
