#include "apps/svm/shard_skew.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/random.h"

namespace dunlin::svm {
namespace {

// Selects the random numbers that say which rows are sorted. They are the same in every run, so
// that runs with other seeds have the same shards.
constexpr std::uint64_t kSortedRows = 0x5348415244;

constexpr std::pair<ShardSkew::By, std::string_view> kNames[] = {
    {ShardSkew::By::kNone, "none"},
    {ShardSkew::By::kLabel, "label"},
    {ShardSkew::By::kFeature, "feature"}};

// Rows without features come last.
std::uint32_t strongest_feature(const Row& row) {
  std::uint32_t strongest = UINT32_MAX;
  float largest = -1;
  for (std::size_t i = 0; i < row.indices.size(); ++i) {
    if (std::abs(row.values[i]) <= largest) continue;
    largest = std::abs(row.values[i]);
    strongest = row.indices[i];
  }
  return strongest;
}

std::uint32_t key_of(const Row& row, ShardSkew::By by) {
  if (by == ShardSkew::By::kFeature) return strongest_feature(row);
  return row.label > 0 ? 1 : 0;
}

// How many of `rows` rows fall to the ranks before `rank`, if they are dealt to all in turns.
std::uint64_t dealt_before(std::uint64_t rows, std::uint32_t rank, std::uint32_t ranks) {
  return rows / ranks * rank + std::min<std::uint64_t>(rows % ranks, rank);
}

Dataset selected(const Dataset& whole, const std::vector<std::uint64_t>& rows) {
  Dataset data;
  data.features = whole.features;
  data.total_rows = whole.total_rows;
  data.label_threshold = whole.label_threshold;
  data.dropped_values = whole.dropped_values;
  data.whole = whole.whole;
  for (const std::uint64_t i : rows) {
    const Row row = whole.row(i);
    data.indices.insert(data.indices.end(), row.indices.begin(), row.indices.end());
    data.values.insert(data.values.end(), row.values.begin(), row.values.end());
    data.row_begin.push_back(data.indices.size());
    data.labels.push_back(row.label);
    data.numbers.push_back(whole.numbers[i]);
  }
  return data;
}

}  // namespace

std::string to_string(const ShardSkew& skew) {
  const auto name = std::ranges::find(kNames, skew.by, [](const auto& each) { return each.first; });
  return std::string(name->second) + (skew.degree == 1 ? "" : fmt::format(":{}", skew.degree));
}

Result<ShardSkew> parse_shard_skew(const std::string& text) {
  const auto colon = std::min(text.find(':'), text.size());
  const auto* const name = std::ranges::find(kNames, std::string_view(text).substr(0, colon),
                                             [](const auto& each) { return each.second; });
  bool is_read = name != std::end(kNames);
  ShardSkew skew;
  if (is_read) skew.by = name->first;
  if (colon < text.size()) {
    const char* const end = text.data() + text.size();
    const auto degree = std::from_chars(text.data() + colon + 1, end, skew.degree);
    is_read = is_read && skew.by != ShardSkew::By::kNone && degree.ec == std::errc{} &&
              degree.ptr == end && skew.degree >= 0 && skew.degree <= 1;
  }
  if (is_read) return skew;
  return Status(Code::kInvalidArgument,
                fmt::format("'{}' is not none, label, feature, label:DEGREE or feature:DEGREE with "
                            "a degree from 0 to 1",
                            text));
}

Dataset skewed_shard(const Dataset& whole, const ShardSkew& skew, Shard shard) {
  std::vector<std::uint64_t> own;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> sorted;  // keys and rows
  std::uint64_t dealt = 0;
  for (std::uint64_t i = 0; i < whole.rows(); ++i) {
    const bool is_sorted =
        !skew.is_none() && Random(kSortedRows, whole.numbers[i]).uniform() < skew.degree;
    if (is_sorted) {
      sorted.emplace_back(key_of(whole.row(i), skew.by), i);
    } else if (shard.owns(dealt++)) {
      own.push_back(i);
    }
  }
  std::ranges::sort(sorted);
  // The blocks fill up what the ranks have of the dealt rows.
  const auto block_begin = [&](std::uint32_t rank) {
    return dealt_before(whole.rows(), rank, shard.ranks) - dealt_before(dealt, rank, shard.ranks);
  };
  const std::uint64_t end = block_begin(shard.rank + 1);
  for (std::uint64_t i = block_begin(shard.rank); i < end; ++i) own.push_back(sorted[i].second);
  std::ranges::sort(own);
  return selected(whole, own);
}

}  // namespace dunlin::svm
