// ModelVector: floats of a model that no peer accesses, in host memory or in the memory of a GPU.
// They are zeros at first. Owned by one thread; moving a vector leaves its elements in place.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/clock.h"
#include "runtime/gpu/driver.h"
#include "runtime/memory/region.h"

namespace dunlin::training {

class ModelVector {
 public:
  ModelVector() = default;
  // In host memory.
  explicit ModelVector(std::size_t count) : host_(count), elements_(host_) {}
  // Waits until the GPU has the zeros, for `timeout` at most.
  static Result<ModelVector> allocate_on_gpu(const std::shared_ptr<GpuDriver>& driver, int device,
                                             std::size_t count, const Clock& clock,
                                             Duration timeout);
  ModelVector(ModelVector&&) = default;
  ModelVector& operator=(ModelVector&&) = default;

  std::span<float> elements() const { return elements_; }

 private:
  std::vector<float> host_;
  std::shared_ptr<MemoryRegion> gpu_;  // null: in host_
  std::span<float> elements_;          // of either
};

}  // namespace dunlin::training
