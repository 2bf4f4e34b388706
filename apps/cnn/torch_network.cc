#include "apps/cnn/torch_network.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace dunlin::cnn {
namespace {

// Runs `body`, whose result type can hold a Status, and turns exceptions of LibTorch into one.
template <typename Body>
auto guarded(const char* what, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::Error& error) {
    return Status(Code::kInternal,
                  fmt::format("LibTorch: {}: {}", what, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return Status(Code::kInternal, fmt::format("LibTorch: {}: {}", what, error.what()));
  }
}

at::Tensor view_of(std::span<float> values) {
  return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kFloat);
}

at::Tensor part_of(const at::Tensor& flat, std::size_t first, std::size_t count) {
  return flat.narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
}

class TorchNetwork final : public Network {
 public:
  explicit TorchNetwork(Architecture architecture)
      : architecture_(std::move(architecture)),
        statistics_(initial_statistics(architecture_)),
        missing_(architecture_.segments.size()) {}

  const Architecture& architecture() const override { return architecture_; }
  std::span<float> statistics() override { return statistics_; }

  Status bind(std::span<float> parameters, std::span<float> gradient) override {
    return guarded("binding parameters", [&] { return bind_leaves(parameters, gradient); });
  }
  Result<Judgment> train(const Batch& batch, const Ready& ready) override {
    return guarded("training", [&] { return propagate(batch, ready); });
  }
  Result<Judgment> evaluate(const Batch& batch) override {
    return guarded("evaluating", [&] { return judge_only(batch); });
  }

 private:
  Status bind_leaves(std::span<float> parameters, std::span<float> gradient) {
    parameters_ = view_of(parameters);
    gradient_ = gradient.empty() ? at::Tensor() : view_of(gradient);
    leaves_.clear();
    accumulators_.clear();
    for (const Parameter& parameter : architecture_.parameters) bind_leaf(parameter);
    return Status::ok();
  }

  Result<Judgment> propagate(const Batch& batch, const Ready& ready) {
    ready_ = &ready;
    outcome_ = Status::ok();
    std::ranges::fill(missing_, 0);
    for (const Parameter& parameter : architecture_.parameters) ++missing_[parameter.segment];
    gradient_.zero_();
    const at::Tensor labels = labels_of(batch);
    const at::Tensor scores = forward(pixels_of(batch), true);
    const at::Tensor loss = at::cross_entropy_loss(scores, labels);
    const Judgment judgment = judge(scores, labels, loss);
    if (!std::isfinite(judgment.loss)) {
      return Status(Code::kOutOfRange, "the loss is not a finite number");
    }
    loss.backward();
    DUNLIN_TRY(outcome_);
    if (std::ranges::any_of(missing_, [](int missing) { return missing != 0; })) {
      return Status(Code::kInternal, "backward propagation left parameters out");
    }
    return judgment;
  }

  Result<Judgment> judge_only(const Batch& batch) {
    const at::NoGradGuard without_gradients;
    const at::Tensor labels = labels_of(batch);
    const at::Tensor scores = forward(pixels_of(batch), false);
    return judge(scores, labels, at::cross_entropy_loss(scores, labels));
  }

  void bind_leaf(const Parameter& parameter) {
    at::Tensor leaf =
        part_of(parameters_, parameter.first, parameter.count).view(parameter.shape).detach();
    if (gradient_.defined()) {
      leaf.set_requires_grad(true);
      // Backward propagation adds in place to a gradient that exists already.
      leaf.mutable_grad() =
          part_of(gradient_, parameter.first, parameter.count).view(parameter.shape);
      // As in DistributedDataParallel: the leaf itself does not own its accumulator.
      auto accumulator = torch::autograd::impl::grad_accumulator(leaf);
      using torch::autograd::variable_list;
      using torch::autograd::utils::LambdaPostHook;
      accumulator->add_post_hook(std::make_unique<LambdaPostHook>(
          [this, segment = parameter.segment](const variable_list& outputs, const variable_list&) {
            note_accumulated(segment);
            return outputs;
          }));
      accumulators_.push_back(std::move(accumulator));
    }
    leaves_.push_back(std::move(leaf));
  }

  // To be called when a parameter of the segment has its gradient.
  void note_accumulated(std::size_t number) {
    if (--missing_[number] != 0 || !outcome_) return;
    const Segment& segment = architecture_.segments[number];
    outcome_ = (*ready_)(segment.first, segment.count);
  }

  // LibTorch only reads the memory of a batch.
  at::Tensor pixels_of(const Batch& batch) const {
    const auto images = static_cast<std::int64_t>(batch.labels.size());
    return at::from_blob(const_cast<float*>(batch.pixels.data()),
                         {images, architecture_.channels, kInputSide, kInputSide}, at::kFloat);
  }
  at::Tensor labels_of(const Batch& batch) const {
    return at::from_blob(const_cast<std::int64_t*>(batch.labels.data()),
                         {static_cast<std::int64_t>(batch.labels.size())}, at::kLong);
  }

  static Judgment judge(const at::Tensor& scores, const at::Tensor& labels,
                        const at::Tensor& loss) {
    const auto right = scores.detach().argmax(1).eq(labels).sum().item<std::int64_t>();
    return {loss.item<float>(), static_cast<std::size_t>(right)};
  }

  at::Tensor forward(at::Tensor x, bool is_training) {
    at::Tensor kept;
    for (const Layer& layer : architecture_.layers) {
      switch (layer.kind) {
        case Layer::Kind::kConvolution:
          x = convolved(x, layer);
          break;
        case Layer::Kind::kBatchNorm:
          x = normalized(x, layer, is_training);
          break;
        case Layer::Kind::kRelu:
          x = at::relu(x);
          break;
        case Layer::Kind::kMaxPool:
          x = at::max_pool2d(x, {2, 2});
          break;
        case Layer::Kind::kShortcutBegin:
          kept = x;
          break;
        case Layer::Kind::kShortcutEnd:
          x = x + shortcut(kept, layer);
          break;
        case Layer::Kind::kMean:
          x = x.mean({2, 3});
          break;
        case Layer::Kind::kLinear:
          x = at::linear(x.flatten(1), leaves_[*layer.weight], leaves_[*layer.bias]);
          break;
      }
    }
    return x;
  }

  at::Tensor convolved(const at::Tensor& x, const Layer& layer) const {
    const std::array<std::int64_t, 2> stride{layer.stride, layer.stride};
    const std::array<std::int64_t, 2> padding{1, 1};
    return at::conv2d(x, leaves_[*layer.weight], layer.bias ? leaves_[*layer.bias] : at::Tensor(),
                      at::IntArrayRef(stride), at::IntArrayRef(padding));
  }

  at::Tensor normalized(const at::Tensor& x, const Layer& layer, bool is_training) {
    const auto channels = static_cast<std::size_t>(layer.channels);
    const std::span<float> own = std::span(statistics_).subspan(layer.statistics, 2 * channels);
    return at::batch_norm(x, leaves_[*layer.weight], leaves_[*layer.bias],
                          view_of(own.first(channels)), view_of(own.last(channels)), is_training,
                          double{kMomentumOfStatistics}, double{kLeastVariance}, true);
  }

  static at::Tensor shortcut(const at::Tensor& kept, const Layer& layer) {
    if (layer.stride == 1) return kept;
    const at::Tensor fewer = kept.slice(2, 0, {}, layer.stride).slice(3, 0, {}, layer.stride);
    const std::int64_t more = layer.channels - kept.size(1);
    return at::constant_pad_nd(fewer, {0, 0, 0, 0, more / 2, more - more / 2});
  }

  const Architecture architecture_;
  std::vector<float> statistics_;

  at::Tensor parameters_;  // views of the caller's memory
  at::Tensor gradient_;
  std::vector<at::Tensor> leaves_;  // views of parameters_, one for each parameter
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;

  // The state of the backward propagation in progress.
  const Ready* ready_ = nullptr;
  std::vector<int> missing_;  // parameters without gradient, for each segment
  Status outcome_;
};

}  // namespace

Result<std::unique_ptr<Network>> make_torch_network(Architecture architecture, int threads) {
  return guarded("starting", [&]() -> Result<std::unique_ptr<Network>> {
    at::set_num_threads(threads);
    // Makes the results repeatable.
    at::globalContext().setDeterministicAlgorithms(true, true);
    return std::unique_ptr<Network>(std::make_unique<TorchNetwork>(std::move(architecture)));
  });
}

}  // namespace dunlin::cnn
