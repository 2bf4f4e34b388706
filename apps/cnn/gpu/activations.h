// Activations: the memory of a GPU that a network computes in, for batches of up to so many images:
// the outputs of its layers, and the gradients on their way back. Owner thread only.
#pragma once

#include <memory>
#include <vector>

#include "apps/cnn/architecture.h"
#include "apps/cnn/gpu/cnn_kernels.h"
#include "runtime/memory/region.h"

namespace dunlin::cnn::gpu {

// A layer's input and output.
struct Place {
  Shape input;
  Shape output;
  const float* from = nullptr;
  float* to = nullptr;    // `from` where a layer only keeps its input
  float* mean = nullptr;  // of batch normalization, per channel (BatchNormArguments)
  float* inverse = nullptr;
};

class Activations {
 public:
  // `architecture` and `kernels` outlive it.
  Activations(const Architecture& architecture, const CnnKernels& kernels,
              std::shared_ptr<GpuDriver> driver, int device);

  // Makes room for batches of this size, which is that of the places from now on. No work on the
  // memory may be in progress. kInvalidArgument if the batch is too large for the kernels' numbers.
  Status use(std::size_t images);

  const Place& at(std::size_t layer) const { return places_[layer]; }
  float* pixels() const { return pixels_; }
  std::int64_t* labels() const { return labels_; }
  // Two places for gradients of any layer's output, and one for that of a shortcut.
  float* gradient(int which) const { return gradients_[which]; }
  float* shortcut_gradient() const { return shortcut_gradient_; }
  float* partial_sums() const { return partial_sums_; }  // of any layer's weights
  Outcome* outcome() const { return outcome_; }

 private:
  class Arena;
  void find_shapes();
  void lay_out(Arena& arena, std::uint32_t images);
  std::uint32_t partial_sums_of(std::size_t layer) const;

  const Architecture& architecture_;
  const CnnKernels& kernels_;
  const std::shared_ptr<GpuDriver> driver_;
  const int device_;
  std::size_t room_ = 0;  // images
  std::shared_ptr<MemoryRegion> memory_;
  std::vector<Place> places_;
  float* pixels_ = nullptr;
  std::int64_t* labels_ = nullptr;
  float* gradients_[2] = {};
  float* shortcut_gradient_ = nullptr;
  float* partial_sums_ = nullptr;
  Outcome* outcome_ = nullptr;
};

}  // namespace dunlin::cnn::gpu
