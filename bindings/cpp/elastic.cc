#include "collectives/elastic/model_snapshot.h"

#include <dunlin/elastic.h>

#include <fmt/format.h>

#include "bindings/cpp/internal.h"

namespace dunlin {

Result<std::uint64_t> share_model(Job& job, const JobMembers& members, std::span<std::byte> model,
                                  std::uint64_t version, bool is_new, Duration timeout) {
  return collective::share_model(Internal::fabric(job),
                                 fmt::format("dunlin/share-model/{}", members.epoch), members.ranks,
                                 is_new, model, version, timeout);
}

}  // namespace dunlin
