// Shared by the tests of windows on GPU memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/graph/generators.h"
#include "collectives/rma/neighbor_window.h"
#include "tests/conformance/gpu_neighbor.h"
#include "tests/conformance/one_window.h"

namespace dunlin::testing {

// Tensors of one rank, in host memory or on the GPU.
template <typename T>
void write(std::span<T> tensor, const std::vector<T>& values, bool is_on_gpu) {
  if (!is_on_gpu) {
    std::copy(values.begin(), values.end(), tensor.begin());
  } else if (!values.empty()) {
    copy_and_await(*load_cuda_driver().value(), [&](GpuStream& stream) {
      return stream.copy_to_device(tensor.data(), values.data(), tensor.size_bytes());
    });
  }
}

template <typename T>
std::vector<T> read(std::span<const T> tensor, bool is_on_gpu) {
  std::vector<T> values(tensor.size());
  if (!is_on_gpu) {
    std::copy(tensor.begin(), tensor.end(), values.begin());
  } else if (!values.empty()) {
    copy_and_await(*load_cuda_driver().value(), [&](GpuStream& stream) {
      return stream.copy_to_host(values.data(), tensor.data(), tensor.size_bytes());
    });
  }
  return values;
}

inline collective::WindowOptions window_options(const Fabric& fabric, const char* spec,
                                                std::size_t count, std::optional<int> gpu) {
  const auto graph = collective::make_graph(spec, fabric.size()).value();
  std::vector<Rank> members;
  for (int rank = 0; rank < fabric.size(); ++rank) members.emplace_back(rank);
  collective::WindowOptions options;
  options.name = gpu ? "gpu" : "host";
  options.neighborhood =
      collective::neighborhood_of(graph, collective::Weighting::kUniform, members, fabric.rank())
          .value();
  options.count = count;
  options.is_readable = true;
  options.gpu = gpu;
  return options;
}

template <typename T>
std::unique_ptr<collective::NeighborWindow<T>> make_window(Fabric& fabric,
                                                           const collective::WindowOptions& options,
                                                           std::span<const T> initial = {}) {
  auto made = collective::NeighborWindow<T>::prepare(fabric, options, initial);
  EXPECT_TRUE(made.is_ok()) << made.status().to_string();
  const Status status = (*made)->connect();
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  return std::move(made).value();
}

}  // namespace dunlin::testing
