// WindowSnapshots: what get() of a window reads. Every rank publishes a copy of its tensor and p,
// and reads those of its in-neighbors, one at a time. Part of NeighborWindow (neighbor_window.h).
//
// In host memory, snapshot.h does the work; on a GPU, gpu_window.h. Owner thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/rma/gpu_window.h"
#include "collectives/rma/tensor_passes.h"
#include "collectives/stochastic/neighborhood.h"
#include "transports/fabric.h"

namespace dunlin::collective {

template <typename T>  // float, double
class WindowSnapshots {
 public:
  virtual ~WindowSnapshots() = default;

  // Finds the snapshots of the in-neighbors. Waits until they have published where these are.
  virtual Status connect() = 0;
  // Publishes the window's tensor and its p. Takes about as long as a copy.
  virtual Status publish(double p) = 0;

  // Whether the snapshot of the in-neighbor with this index can be read; else kUnavailable.
  virtual Status check(std::size_t in) const = 0;
  // Begins to read it. A read that is in progress is dropped.
  virtual void start(std::size_t in) = 0;
  // kBusy until it was read.
  virtual Status progress() = 0;
  // What was read, until the next start(); the tensor is where the passes take place.
  virtual std::span<const T> tensor() const = 0;
  virtual double p() const = 0;
};

// In host memory. `self`: the window's tensor. `topic`: of what the ranks publish; the same on all
// of them.
template <typename T>
Result<std::unique_ptr<WindowSnapshots<T>>> make_host_snapshots(transport::Fabric& fabric,
                                                                std::string topic,
                                                                const Neighborhood& around,
                                                                std::span<const T> self);
// In the memory of a window on a GPU, which its connect() opens. Both arguments outlive the result.
template <typename T>
std::unique_ptr<WindowSnapshots<T>> make_gpu_snapshots(GpuWindow& window, TensorPasses<T>& passes);

}  // namespace dunlin::collective
