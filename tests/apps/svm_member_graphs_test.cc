#include "apps/svm/program/member_graphs.h"

#include <gtest/gtest.h>

#include "collectives/graph/generators.h"
#include "collectives/graph/properties.h"

namespace dunlin::svm {
namespace {

constexpr int kFounders = 8;

std::vector<Rank> ranks(std::initializer_list<int> numbers) {
  return {numbers.begin(), numbers.end()};
}

std::vector<std::vector<int>> edges_of(const collective::Graph& graph) {
  std::vector<std::vector<int>> edges;
  for (int node = 0; node < graph.nodes(); ++node) {
    const auto out = graph.out_neighbors(node);
    edges.emplace_back(out.begin(), out.end());
  }
  return edges;
}

// A newcomer has not seen the changes that the others have, nor need one of the others have seen
// all of them.
TEST(MemberGraphs, DependOnThePresentMembersOnly) {
  const std::vector<std::vector<Rank>> history = {ranks({0, 1, 2, 3, 4, 5, 6, 7}),
                                                  ranks({0, 1, 2, 4, 5, 6, 7}),
                                                  ranks({0, 1, 4, 5, 6, 7}),
                                                  ranks({0, 1, 4, 5, 6, 7, 8, 9}),
                                                  ranks({0, 1, 4, 5, 7, 8, 9}),
                                                  ranks({0, 1, 4, 5, 7, 9}),
                                                  ranks({0, 1, 4, 5, 7}),
                                                  ranks({1, 4, 5, 7}),
                                                  ranks({1, 4, 5, 7, 10, 11, 12, 13}),
                                                  ranks({5, 11}),
                                                  ranks({11})};
  for (const char* const spec : {"complete", "ring", "root-expander", "exponential", "torus:2x4",
                                 "mesh:2x4", "hypercube", "random-regular:3", "star", "chain"}) {
    MemberGraphs graphs(spec, kFounders);
    for (const auto& members : history) {
      const auto known = graphs.of(members);
      const auto fresh = MemberGraphs(spec, kFounders).of(members);
      ASSERT_TRUE(known && fresh) << spec;
      EXPECT_EQ(known->nodes(), static_cast<int>(members.size())) << spec;
      EXPECT_EQ(edges_of(*known), edges_of(*fresh)) << spec << ", " << members.size();
      EXPECT_TRUE(collective::is_strongly_connected(*known)) << spec << ", " << members.size();
    }
  }
}

TEST(MemberGraphs, FoundersTrainOverTheGraphThatWasAskedFor) {
  MemberGraphs graphs("hypercube", kFounders);
  EXPECT_EQ(edges_of(graphs.of(ranks({0, 1, 2, 3, 4, 5, 6, 7})).value()),
            edges_of(collective::make_graph("hypercube", kFounders).value()));
  // Without one corner, it is no exponential graph.
  EXPECT_EQ(graphs.of(ranks({1, 2, 3, 4, 5, 6, 7}))->edges(), 24u - 6u);
}

TEST(MemberGraphs, AGraphThatDoesNotExistIsRefused) {
  MemberGraphs graphs("file:/nowhere", kFounders);
  EXPECT_FALSE(graphs.of(ranks({0, 1, 2, 3, 4, 5, 6, 7})).is_ok());
  EXPECT_EQ(graphs.of(ranks({0, 8}))->nodes(), 2);
}

}  // namespace
}  // namespace dunlin::svm
