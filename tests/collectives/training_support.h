// Common parts of the tests of the training methods: a problem that is split over workers, and the
// iterations of a worker, blocking and step by step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "collectives/training/method.h"
#include "collectives/training/synchronizer.h"

namespace dunlin::testing {

// Least squares: find x with a_k x = b_k for all rows k. The rows are orthonormal. Each worker has
// fewer rows than there are unknowns, so no worker finds x alone: its function is flat in most
// directions. All functions have a minimum at the solution.
class LeastSquares {
 public:
  static constexpr std::size_t kUnknowns = 32;

  explicit LeastSquares(int workers) : workers_(static_cast<std::size_t>(workers)) {
    // Rows of a Householder reflection, I - 2 v v'.
    double norm = 0;
    for (std::size_t i = 0; i < kUnknowns; ++i) norm += direction(i) * direction(i);
    for (std::size_t row = 0; row < kUnknowns; ++row) {
      for (std::size_t i = 0; i < kUnknowns; ++i) {
        matrix_[row][i] = (row == i ? 1 : 0) - 2 * direction(row) * direction(i) / norm;
        right_[row] += matrix_[row][i] * solution(i);
      }
    }
  }

  static double solution(std::size_t i) { return std::sin(static_cast<double>(3 * i + 1)); }

  // The gradient of one half of the sum over the worker's rows of (a_k x - b_k)^2.
  void gradient(int worker, std::span<const float> x, std::span<float> gradient) const {
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    for (std::size_t row = static_cast<std::size_t>(worker); row < kUnknowns; row += workers_) {
      double rest = -right_[row];
      for (std::size_t i = 0; i < kUnknowns; ++i) rest += matrix_[row][i] * x[i];
      for (std::size_t i = 0; i < kUnknowns; ++i)
        gradient[i] += static_cast<float>(rest * matrix_[row][i]);
    }
  }
  static double error(std::span<const float> x) {
    double worst = 0;
    for (std::size_t i = 0; i < kUnknowns; ++i)
      worst = std::max(worst, std::abs(x[i] - solution(i)));
    return worst;
  }

 private:
  static double direction(std::size_t i) { return 1 + std::cos(static_cast<double>(i * i)); }

  std::size_t workers_;
  double matrix_[kUnknowns][kUnknowns] = {};
  double right_[kUnknowns] = {};
};

// Arguments: worker, iteration, parameters, gradient.
using ComputeGradient =
    std::function<void(int, std::uint64_t, std::span<const float>, std::span<float>)>;

// One iteration. Reports the gradient in two parts, the last one first. Returns true if all workers
// end here.
inline Result<bool> iterate(training::Synchronizer& synchronizer, int worker,
                            std::uint64_t iteration, const ComputeGradient& compute,
                            float learning_rate, bool stop = false) {
  DUNLIN_TRY(synchronizer.begin(iteration));
  compute(worker, iteration, synchronizer.parameters(), synchronizer.gradient());
  const std::size_t half = synchronizer.gradient().size() / 2;
  DUNLIN_TRY(synchronizer.ready(half, synchronizer.gradient().size() - half));
  DUNLIN_TRY(synchronizer.ready(0, half));
  return synchronizer.finish(learning_rate, stop);
}

// The iterations of a worker, step by step, for ranks that share a thread.
class SteppedWorker {
 public:
  SteppedWorker(training::Method& method, int worker, std::uint64_t iterations,
                ComputeGradient compute, float learning_rate, std::mt19937_64& random)
      : method_(method),
        worker_(worker),
        iterations_(iterations),
        compute_(std::move(compute)),
        learning_rate_(learning_rate),
        random_(random) {}

  // Called after each iteration.
  std::function<void(std::uint64_t iteration)> on_finished;
  bool leaves = true;             // leaves after its iterations
  std::uint64_t slowness = 4;     // mean number of act() calls per computation
  std::function<bool()> may_end;  // whether a computation may end; empty: always
  std::uint64_t stop_after = 0;   // asks to stop after this many iterations; 0: never

  // Returns true once the worker has left, completed all iterations, or failed.
  bool act() {
    if (error_.is_error() || step_ == Step::kOver) {
      if (!error_.is_error()) method_.progress();
      return true;
    }
    Status status = advance();
    if (status.is_error()) error_ = std::move(status);
    return error_.is_error() || step_ == Step::kOver;
  }

  std::uint64_t finished() const { return finished_; }
  bool is_leaving() const { return step_ == Step::kLeave; }
  // Number of iterations for which finish() was called.
  std::uint64_t given() const { return finished_ + (step_ == Step::kFinish ? 1 : 0); }
  const Status& error() const { return error_; }

 private:
  enum class Step : std::uint8_t { kIdle, kBegin, kCompute, kFinish, kLeave, kOver };

  Status advance() {
    if (step_ == Step::kCompute) return compute();
    DUNLIN_TRY(method_.test());
    switch (step_) {
      case Step::kBegin:
        compute_(worker_, finished_, method_.parameters(), method_.gradient());
        rest_ = method_.gradient().size();
        step_ = Step::kCompute;
        break;
      case Step::kFinish:
        step_ = Step::kIdle;
        if (on_finished) on_finished(finished_);
        ++finished_;
        if (method_.stopped()) iterations_ = finished_;
        break;
      case Step::kLeave:
        step_ = Step::kOver;
        break;
      case Step::kIdle:
        return next();
      case Step::kCompute:
      case Step::kOver:
        break;
    }
    return Status::ok();
  }
  Status next() {
    if (finished_ < iterations_) {
      step_ = Step::kBegin;
      return method_.begin(finished_);
    }
    step_ = leaves ? Step::kLeave : Step::kOver;
    return leaves ? method_.leave() : Status::ok();
  }
  // Reports parts of any size, from the end, and sometimes not the first elements.
  Status compute() {
    method_.progress();
    if (random_() % slowness != 0 || (may_end && !may_end())) return Status::ok();
    if (random_() % 3 != 0 && rest_ > 0) {
      const std::size_t part = 1 + random_() % rest_;
      rest_ -= part;
      return method_.ready(rest_, part);
    }
    step_ = Step::kFinish;
    return method_.finish(learning_rate_, stop_after > 0 && finished_ + 1 >= stop_after);
  }

  training::Method& method_;
  const int worker_;
  std::uint64_t iterations_;
  ComputeGradient compute_;
  float learning_rate_;
  std::mt19937_64& random_;
  Step step_ = Step::kIdle;
  std::uint64_t finished_ = 0;
  std::size_t rest_ = 0;
  Status error_;
};

}  // namespace dunlin::testing
