#include "runtime/bootstrap/topic_values.h"

#include <cstddef>
#include <vector>

namespace dunlin::bootstrap {

Status TopicValues::fetch(std::span<const Rank> publishers, Duration timeout) {
  std::vector<Rank> missing;
  for (const Rank publisher : publishers) {
    if (!kept_.contains(publisher)) missing.push_back(publisher);
  }
  if (missing.empty()) return Status::ok();
  DUNLIN_ASSIGN(std::vector<Bytes> values, bootstrap_.lookup_each(topic_, missing, timeout));
  for (std::size_t i = 0; i < missing.size(); ++i) kept_.emplace(missing[i], std::move(values[i]));
  return Status::ok();
}

Result<Bytes> TopicValues::lookup(Rank publisher, Duration timeout) const {
  if (const auto kept = kept_.find(publisher); kept != kept_.end()) return kept->second;
  return bootstrap_.lookup_from(publisher, Bootstrap::key_of(topic_, publisher), timeout);
}

}  // namespace dunlin::bootstrap
