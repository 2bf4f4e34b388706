#include "apps/cnn/gpu/gpu_network.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "apps/cnn/gpu/activations.h"
#include "collectives/training/model_vector.h"

namespace dunlin::cnn {
namespace {

using gpu::Activations;
using gpu::CnnKernels;
using gpu::Place;

// Far more than the work on any batch takes that fits into the memory of a GPU.
constexpr Duration kLongestWork = std::chrono::minutes(10);

class GpuNetwork final : public Network {
 public:
  GpuNetwork(Architecture architecture, std::shared_ptr<GpuDriver> driver, int device,
             std::unique_ptr<CnnKernels> kernels)
      : architecture_(std::move(architecture)),
        driver_(std::move(driver)),
        device_(device),
        kernels_(std::move(kernels)),
        activations_(architecture_, *kernels_, driver_, device_),
        missing_(architecture_.segments.size()) {}
  ~GpuNetwork() override { settle(); }
  Status prepare();

  const Architecture& architecture() const override { return architecture_; }
  std::span<float> statistics() override { return statistics_.elements(); }
  Status bind(std::span<float> parameters, std::span<float> gradient) override {
    parameters_ = parameters;
    gradient_ = gradient;
    return Status::ok();
  }
  Result<Judgment> train(const Batch& batch, const Ready& ready) override;
  Result<Judgment> evaluate(const Batch& batch) override;

 private:
  // Start work on stream_.
  Status load(const Batch& batch);
  Status forward(bool is_training);
  Status forward(std::size_t number, bool is_training);
  Status judge(bool is_training);
  Status backward();
  Status backward(std::size_t number);
  Status backward_convolution(const Layer& layer, const Place& place, bool has_input_gradient);
  Status backward_linear(const Layer& layer, const Place& place, bool has_input_gradient);
  Status note_done(const Layer& layer);

  // Wait for it.
  Result<Judgment> fetch_outcome(GpuStream& stream, std::size_t images);
  template <typename Poll>
  Status await(const Poll& poll) const;
  void settle();

  const float* parameter(std::size_t index) const {
    return parameters_.data() + architecture_.parameters[index].first;
  }
  float* gradient_of(std::size_t index) const {
    return gradient_.data() + architecture_.parameters[index].first;
  }
  // Where the gradient is that propagates back, and where the next one goes.
  float* incoming() const { return activations_.gradient(which_); }
  float* outgoing() const { return activations_.gradient(1 - which_); }

  const Architecture architecture_;
  const std::shared_ptr<GpuDriver> driver_;
  const int device_;
  const std::unique_ptr<CnnKernels> kernels_;
  const SteadyClock clock_;
  Activations activations_;
  training::ModelVector statistics_;
  std::span<float> parameters_;
  std::span<float> gradient_;

  std::unique_ptr<GpuStream> stream_;
  std::unique_ptr<GpuStream> outcome_stream_;  // so that the outcome does not wait for all work
  std::unique_ptr<GpuEvent> has_outcome_;
  std::vector<std::unique_ptr<GpuEvent>> has_segment_;
  std::vector<int> missing_;  // parameters without gradient, for each segment
  int which_ = 0;
  const Place* kept_ = nullptr;  // of the shortcut in progress
  gpu::Outcome outcome_;
};

Status GpuNetwork::prepare() {
  DUNLIN_ASSIGN(stream_, driver_->create_stream(device_));
  DUNLIN_ASSIGN(outcome_stream_, driver_->create_stream(device_));
  DUNLIN_ASSIGN(has_outcome_, driver_->create_event(device_));
  for (std::size_t i = 0; i < architecture_.segments.size(); ++i) {
    DUNLIN_ASSIGN(auto event, driver_->create_event(device_));
    has_segment_.push_back(std::move(event));
  }
  DUNLIN_ASSIGN(statistics_, training::ModelVector::allocate_on_gpu(
                                 driver_, device_, architecture_.statistics, clock_, kLongestWork));
  if (architecture_.statistics == 0) return Status::ok();
  const std::vector<float> initial = initial_statistics(architecture_);
  return await_copy(*stream_,
                    stream_->copy_to_device(statistics_.elements().data(), initial.data(),
                                            initial.size() * sizeof(float)),
                    clock_, clock_.now() + kLongestWork, "setting the statistics of batches");
}

template <typename Poll>
Status GpuNetwork::await(const Poll& poll) const {
  const TimePoint deadline = clock_.now() + kLongestWork;
  for (;;) {
    Status status = poll();
    if (!status.is_busy()) return std::move(status).with_context(fmt::format("on GPU {}", device_));
    if (clock_.now() >= deadline)
      return {Code::kDeadlineExceeded, fmt::format("GPU {} has not completed a batch", device_)};
    sched_yield();
  }
}

// After an error: work in progress uses the memory of this object and of the caller.
void GpuNetwork::settle() {
  for (const auto* stream : {&stream_, &outcome_stream_}) {
    if (*stream != nullptr) (void)await([&] { return (*stream)->poll(); });
  }
}

Result<Judgment> GpuNetwork::train(const Batch& batch, const Ready& ready) {
  const auto propagate = [&]() -> Result<Judgment> {
    if (gradient_.empty()) return Status(Code::kInvalidArgument, "no gradient is bound");
    DUNLIN_TRY(load(batch));
    DUNLIN_TRY(forward(true));
    DUNLIN_TRY(judge(true));
    DUNLIN_TRY(has_outcome_->record(stream_->native()));
    DUNLIN_TRY(backward());
    DUNLIN_TRY(has_outcome_->delay(outcome_stream_->native()));
    DUNLIN_ASSIGN(const Judgment judgment, fetch_outcome(*outcome_stream_, batch.labels.size()));
    if (!std::isfinite(judgment.loss))
      return Status(Code::kOutOfRange, "the loss is not a finite number");
    for (std::size_t i = architecture_.segments.size(); i > 0; --i) {
      DUNLIN_TRY(await([&] { return has_segment_[i - 1]->poll(); }));
      const Segment& segment = architecture_.segments[i - 1];
      DUNLIN_TRY(ready(segment.first, segment.count));
    }
    DUNLIN_TRY(await([&] { return stream_->poll(); }));
    return judgment;
  };
  auto judgment = propagate();
  if (!judgment) settle();
  return judgment;
}

Result<Judgment> GpuNetwork::evaluate(const Batch& batch) {
  const auto propagate = [&]() -> Result<Judgment> {
    DUNLIN_TRY(load(batch));
    DUNLIN_TRY(forward(false));
    DUNLIN_TRY(judge(false));
    return fetch_outcome(*stream_, batch.labels.size());
  };
  auto judgment = propagate();
  if (!judgment) settle();
  return judgment;
}

Status GpuNetwork::load(const Batch& batch) {
  for (const std::int64_t label : batch.labels) {
    if (label >= 0 && label < architecture_.classes) continue;
    return {Code::kInvalidArgument, fmt::format("label {}: the network has classes 0 to {}", label,
                                                architecture_.classes - 1)};
  }
  DUNLIN_TRY(activations_.use(batch.labels.size()));
  DUNLIN_TRY(stream_->copy_to_device(activations_.pixels(), batch.pixels.data(),
                                     batch.pixels.size_bytes()));
  return stream_->copy_to_device(activations_.labels(), batch.labels.data(),
                                 batch.labels.size_bytes());
}

Result<Judgment> GpuNetwork::fetch_outcome(GpuStream& stream, std::size_t images) {
  DUNLIN_TRY(stream.copy_to_host(&outcome_, activations_.outcome(), sizeof outcome_));
  DUNLIN_TRY(await([&] { return stream.poll(); }));
  const float right = std::clamp(outcome_.right, 0.0F, static_cast<float>(images));
  return Judgment{outcome_.loss, static_cast<std::size_t>(right)};
}

Status GpuNetwork::judge(bool is_training) {
  const Place& last = activations_.at(architecture_.layers.size() - 1);
  which_ = 0;
  gpu::LossArguments arguments;
  arguments.images = last.output.images;
  arguments.classes = last.output.channels;
  arguments.scores = last.to;
  arguments.labels = activations_.labels();
  if (is_training) arguments.gradient = incoming();
  arguments.outcome = activations_.outcome();
  return kernels_->loss(*stream_, arguments);
}

Status GpuNetwork::forward(bool is_training) {
  for (std::size_t i = 0; i < architecture_.layers.size(); ++i) DUNLIN_TRY(forward(i, is_training));
  return Status::ok();
}

Status GpuNetwork::forward(std::size_t number, bool is_training) {
  const Layer& layer = architecture_.layers[number];
  const Place& place = activations_.at(number);
  switch (layer.kind) {
    case Layer::Kind::kConvolution: {
      gpu::ConvolutionArguments arguments;
      arguments.input_shape = place.input;
      arguments.output_shape = place.output;
      arguments.stride_bits = place.input.side_bits - place.output.side_bits;
      arguments.input = place.from;
      arguments.weight = parameter(*layer.weight);
      if (layer.bias) arguments.bias = parameter(*layer.bias);
      arguments.output = place.to;
      return kernels_->convolution(*stream_, arguments);
    }
    case Layer::Kind::kBatchNorm: {
      gpu::BatchNormArguments arguments;
      arguments.shape = place.input;
      arguments.momentum = kMomentumOfStatistics;
      arguments.least_variance = kLeastVariance;
      arguments.is_training = is_training;
      arguments.input = place.from;
      arguments.weight = parameter(*layer.weight);
      arguments.bias = parameter(*layer.bias);
      arguments.output = place.to;
      arguments.running_mean = statistics_.elements().data() + layer.statistics;
      arguments.running_variance = arguments.running_mean + layer.channels;
      arguments.mean = place.mean;
      arguments.inverse = place.inverse;
      return kernels_->batch_norm(*stream_, arguments);
    }
    case Layer::Kind::kRelu:
      return kernels_->relu(*stream_, {place.input.count(), place.from, nullptr, place.to});
    case Layer::Kind::kMaxPool:
      return kernels_->max_pool(*stream_, {place.input, place.from, place.to, nullptr, nullptr});
    case Layer::Kind::kShortcutBegin:
      kept_ = &place;
      return Status::ok();
    case Layer::Kind::kShortcutEnd: {
      gpu::ShortcutArguments arguments;
      arguments.kept_shape = kept_->input;
      arguments.output_shape = place.output;
      arguments.stride_bits = kept_->input.side_bits - place.output.side_bits;
      arguments.kept = kept_->from;
      arguments.input = place.from;
      arguments.output = place.to;
      return kernels_->shortcut(*stream_, arguments);
    }
    case Layer::Kind::kMean:
      return kernels_->mean(*stream_, {place.input, place.from, place.to, nullptr, nullptr});
    case Layer::Kind::kLinear: {
      gpu::LinearArguments arguments;
      arguments.images = place.input.images;
      arguments.inputs = place.input.channels * place.input.plane();
      arguments.outputs = place.output.channels;
      arguments.input = place.from;
      arguments.weight = parameter(*layer.weight);
      arguments.bias = parameter(*layer.bias);
      arguments.output = place.to;
      return kernels_->linear(*stream_, arguments);
    }
  }
  return Status::ok();
}

Status GpuNetwork::backward() {
  std::ranges::fill(missing_, 0);
  for (const Parameter& parameter : architecture_.parameters) ++missing_[parameter.segment];
  for (std::size_t i = architecture_.layers.size(); i > 0; --i) {
    DUNLIN_TRY(backward(i - 1));
    DUNLIN_TRY(note_done(architecture_.layers[i - 1]));
  }
  return Status::ok();
}

// Records where the gradient of a segment is complete.
Status GpuNetwork::note_done(const Layer& layer) {
  for (const auto& index : {layer.weight, layer.bias}) {
    if (!index) continue;
    const std::size_t segment = architecture_.parameters[*index].segment;
    if (--missing_[segment] == 0) DUNLIN_TRY(has_segment_[segment]->record(stream_->native()));
  }
  return Status::ok();
}

Status GpuNetwork::backward(std::size_t number) {
  const Layer& layer = architecture_.layers[number];
  const Place& place = activations_.at(number);
  const bool has_input_gradient = number > 0;  // images have none
  switch (layer.kind) {
    case Layer::Kind::kConvolution:
      DUNLIN_TRY(backward_convolution(layer, place, has_input_gradient));
      break;
    case Layer::Kind::kBatchNorm: {
      gpu::BatchNormGradientArguments arguments;
      arguments.shape = place.input;
      arguments.input = place.from;
      arguments.weight = parameter(*layer.weight);
      arguments.mean = place.mean;
      arguments.inverse = place.inverse;
      arguments.output_gradient = incoming();
      arguments.input_gradient = incoming();
      arguments.weight_gradient = gradient_of(*layer.weight);
      arguments.bias_gradient = gradient_of(*layer.bias);
      return kernels_->batch_norm_gradient(*stream_, arguments);
    }
    case Layer::Kind::kRelu:
      return kernels_->relu_gradient(*stream_,
                                     {place.input.count(), incoming(), place.to, incoming()});
    case Layer::Kind::kMaxPool:
      DUNLIN_TRY(kernels_->max_pool_gradient(
          *stream_, {place.input, place.from, nullptr, incoming(), outgoing()}));
      break;
    case Layer::Kind::kShortcutBegin: {
      gpu::ShortcutArguments arguments;
      arguments.kept_shape = place.input;
      arguments.output_shape = kept_->output;
      arguments.stride_bits = place.input.side_bits - kept_->output.side_bits;
      arguments.output_gradient = activations_.shortcut_gradient();
      arguments.kept_gradient = incoming();
      return kernels_->shortcut_gradient(*stream_, arguments);
    }
    case Layer::Kind::kShortcutEnd:
      kept_ = &place;
      return stream_->copy_on_device(activations_.shortcut_gradient(), incoming(),
                                     place.output.count() * sizeof(float));
    case Layer::Kind::kMean:
      DUNLIN_TRY(kernels_->mean_gradient(*stream_,
                                         {place.input, nullptr, nullptr, incoming(), outgoing()}));
      break;
    case Layer::Kind::kLinear:
      DUNLIN_TRY(backward_linear(layer, place, has_input_gradient));
      break;
  }
  which_ = 1 - which_;
  return Status::ok();
}

Status GpuNetwork::backward_convolution(const Layer& layer, const Place& place,
                                        bool has_input_gradient) {
  gpu::ConvolutionArguments arguments;
  arguments.input_shape = place.input;
  arguments.output_shape = place.output;
  arguments.stride_bits = place.input.side_bits - place.output.side_bits;
  arguments.output_gradient = incoming();
  if (layer.bias) {
    DUNLIN_TRY(
        kernels_->channel_sum(*stream_, {place.output, incoming(), gradient_of(*layer.bias)}));
  }
  gpu::ConvolutionArguments weight = arguments;
  weight.input = place.from;
  weight.splits = kernels_->splits(arguments);
  float* const sum = gradient_of(*layer.weight);
  weight.weight_gradient = weight.splits > 1 ? activations_.partial_sums() : sum;
  DUNLIN_TRY(kernels_->convolution_weight(*stream_, weight));
  if (weight.splits > 1) {
    DUNLIN_TRY(kernels_->sum_parts(
        *stream_, {weight.splits, weight.weights(), activations_.partial_sums(), sum}));
  }
  if (!has_input_gradient) return Status::ok();
  arguments.weight = parameter(*layer.weight);
  arguments.input_gradient = outgoing();
  return kernels_->convolution_input(*stream_, arguments);
}

Status GpuNetwork::backward_linear(const Layer& layer, const Place& place,
                                   bool has_input_gradient) {
  gpu::LinearArguments arguments;
  arguments.images = place.input.images;
  arguments.inputs = place.input.channels * place.input.plane();
  arguments.outputs = place.output.channels;
  arguments.output_gradient = incoming();
  gpu::LinearArguments weight = arguments;
  weight.input = place.from;
  weight.weight_gradient = gradient_of(*layer.weight);
  DUNLIN_TRY(kernels_->linear_weight(*stream_, weight));
  DUNLIN_TRY(kernels_->channel_sum(*stream_, {place.output, incoming(), gradient_of(*layer.bias)}));
  if (!has_input_gradient) return Status::ok();
  arguments.weight = parameter(*layer.weight);
  arguments.input_gradient = outgoing();
  return kernels_->linear_input(*stream_, arguments);
}

}  // namespace

Result<std::unique_ptr<Network>> make_gpu_network(Architecture architecture,
                                                  std::shared_ptr<GpuDriver> driver, int device) {
  DUNLIN_ASSIGN(auto kernels, CnnKernels::load(*driver, device));
  auto network = std::make_unique<GpuNetwork>(std::move(architecture), std::move(driver), device,
                                              std::move(kernels));
  DUNLIN_TRY(network->prepare());
  return std::unique_ptr<Network>(std::move(network));
}

}  // namespace dunlin::cnn
