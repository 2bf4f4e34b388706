#include "apps/cnn/gpu/activations.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "apps/cnn/batches.h"

namespace dunlin::cnn::gpu {
namespace {

constexpr std::uint32_t bits_of(int power_of_two) {
  return static_cast<std::uint32_t>(std::countr_zero(static_cast<unsigned>(power_of_two)));
}

}  // namespace

// Hands out parts of a piece of memory, or only counts them.
class Activations::Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}
  template <typename T = float>
  T* take(std::size_t count) {
    const std::size_t first = used_;
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + first);
  }
  std::size_t used() const { return used_; }

 private:
  static constexpr std::size_t kAlignment = 256;  // what cuMemAlloc aligns to
  std::byte* base_;
  std::size_t used_ = 0;
};

Activations::Activations(const Architecture& architecture, const CnnKernels& kernels,
                         std::shared_ptr<GpuDriver> driver, int device)
    : architecture_(architecture),
      kernels_(kernels),
      driver_(std::move(driver)),
      device_(device),
      places_(architecture.layers.size()) {
  find_shapes();
}

// Shapes of a single image.
void Activations::find_shapes() {
  Shape shape{1, static_cast<std::uint32_t>(architecture_.channels), bits_of(kInputSide)};
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Layer& layer = architecture_.layers[i];
    places_[i].input = shape;
    switch (layer.kind) {
      case Layer::Kind::kConvolution:
        shape.channels = static_cast<std::uint32_t>(layer.channels);
        shape.side_bits -= bits_of(layer.stride);
        break;
      case Layer::Kind::kMaxPool:
        --shape.side_bits;
        break;
      case Layer::Kind::kMean:
        shape.side_bits = 0;
        break;
      case Layer::Kind::kLinear:
        shape = {1, static_cast<std::uint32_t>(layer.channels), 0};
        break;
      case Layer::Kind::kBatchNorm:
      case Layer::Kind::kRelu:
      case Layer::Kind::kShortcutBegin:
      case Layer::Kind::kShortcutEnd:
        break;
    }
    places_[i].output = shape;
  }
}

// The elements that the parts of a split gradient of a convolution's weights take.
std::uint32_t Activations::partial_sums_of(std::size_t layer) const {
  ConvolutionArguments arguments;
  arguments.input_shape = places_[layer].input;
  arguments.output_shape = places_[layer].output;
  const std::uint32_t splits = kernels_.splits(arguments);
  return splits > 1 ? splits * arguments.weights() : 0;
}

void Activations::lay_out(Arena& arena, std::uint32_t images) {
  std::size_t largest = 0;
  std::size_t largest_sums = 0;
  pixels_ = arena.take(images * places_.front().input.channels * places_.front().input.plane());
  labels_ = arena.take<std::int64_t>(images);
  const float* from = pixels_;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    const Layer& layer = architecture_.layers[i];
    place.input.images = place.output.images = images;
    place.from = from;
    if (layer.kind != Layer::Kind::kShortcutBegin)
      from = place.to = arena.take(place.output.count());
    if (layer.kind == Layer::Kind::kBatchNorm) {
      place.mean = arena.take(place.output.channels);
      place.inverse = arena.take(place.output.channels);
    }
    if (layer.kind == Layer::Kind::kConvolution)
      largest_sums = std::max<std::size_t>(largest_sums, partial_sums_of(i));
    largest = std::max<std::size_t>(largest, place.output.count());
  }
  for (float*& gradient : gradients_) gradient = arena.take(largest);
  shortcut_gradient_ = arena.take(largest);
  partial_sums_ = arena.take(largest_sums);
  outcome_ = arena.take<Outcome>(1);
}

Status Activations::use(std::size_t images) {
  std::size_t largest = 0;  // elements of an image
  for (const Place& place : places_) {
    largest = std::max<std::size_t>(largest, place.output.channels * place.output.plane());
    largest = std::max<std::size_t>(largest, place.input.channels * place.input.plane());
  }
  const std::size_t most = std::numeric_limits<std::int32_t>::max() / largest;
  if (images == 0 || images > most) {
    return {
        Code::kInvalidArgument,
        fmt::format("a batch of {} images: on a GPU, this network takes 1 to {}", images, most)};
  }
  const auto count = static_cast<std::uint32_t>(images);
  if (images > room_) {
    Arena needed(nullptr);
    lay_out(needed, count);
    memory_.reset();
    room_ = 0;
    DUNLIN_ASSIGN(memory_, MemoryRegion::allocate_on_gpu(driver_, device_, needed.used()));
    room_ = images;
  }
  Arena arena(memory_->data());
  lay_out(arena, count);
  return Status::ok();
}

}  // namespace dunlin::cnn::gpu
