#include "apps/svm/program/member_graphs.h"

#include <fmt/format.h>

#include "collectives/graph/generators.h"
#include "collectives/graph/properties.h"
#include "collectives/graph/rebuild.h"

namespace dunlin::svm {

Result<collective::Graph> MemberGraphs::of(const std::vector<Rank>& members) {
  if (members.back().value() >= founders_)
    return collective::resize_graph(spec_, static_cast<int>(members.size()));
  if (!whole_) DUNLIN_TRY(make_whole());
  if (static_cast<int>(members.size()) == founders_) return *whole_;
  std::vector<int> nodes;
  for (const Rank member : members) nodes.push_back(member.value());
  return collective::rebuild_graph(*whole_, nodes);
}

Status MemberGraphs::make_whole() {
  DUNLIN_ASSIGN(collective::Graph graph, collective::make_graph(spec_, founders_));
  if (!collective::is_strongly_connected(graph)) {
    return {Code::kInvalidArgument,
            fmt::format("graph '{}' over {} workers is not strongly connected: some workers would "
                        "never receive the models of others",
                        spec_, founders_)};
  }
  whole_ = std::move(graph);
  return Status::ok();
}

}  // namespace dunlin::svm
