// OneWindow: a window of a test over a named node graph, and what ranks do to agree on its state.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "collectives/graph/generators.h"
#include "collectives/rma/neighbor_window.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {

template <typename T>
struct OneWindow {
  OneWindow(transport::Fabric& fabric, const char* spec, std::size_t count, T initial,
            bool is_readable = false)
      : graph(collective::make_graph(spec, fabric.size()).value()) {
    std::vector<Rank> members;
    for (int rank = 0; rank < fabric.size(); ++rank) members.emplace_back(rank);
    collective::WindowOptions options;
    options.neighborhood =
        collective::neighborhood_of(graph, collective::Weighting::kUniform, members, fabric.rank())
            .value();
    options.count = count;
    options.is_zeroed = true;
    options.is_readable = is_readable;
    out = options.neighborhood.out;
    in = options.neighborhood.in;
    auto made =
        collective::NeighborWindow<T>::prepare(fabric, options, std::vector<T>(count, initial));
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    window = std::move(made).value();
    const Status status = window->connect();
    EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
  std::vector<collective::WeightedPeer> to_all(double weight) const {
    std::vector<collective::WeightedPeer> weights;
    for (const Rank peer : out) weights.push_back({peer, weight});
    return weights;
  }

  collective::Graph graph;
  std::vector<Rank> out;
  std::vector<Rank> in;
  std::unique_ptr<collective::NeighborWindow<T>> window;
};

// As sync(), but also progresses the window, since peers may wait for this rank to take deposits
// over.
template <typename T>
void settle(transport::Fabric& fabric, collective::NeighborWindow<T>& window,
            const std::string& name) {
  const auto key = [&](int rank) { return name + "/" + std::to_string(rank); };
  Status flushed;
  EXPECT_TRUE(progress_until(fabric, [&] { return !(flushed = window.flush()).is_busy(); }));
  EXPECT_TRUE(flushed.is_ok()) << flushed.to_string();
  EXPECT_TRUE(fabric.bootstrap().publish(key(fabric.rank().value()), {}).is_ok());
  for (int rank = 0; rank < fabric.size(); ++rank) {
    EXPECT_TRUE(progress_until(fabric, [&] {
      EXPECT_TRUE(window.progress().is_ok());
      return fabric.bootstrap().lookup(key(rank), std::chrono::milliseconds(1)).is_ok();
    }));
  }
}

}  // namespace dunlin::testing
