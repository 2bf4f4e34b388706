// Algorithm: one rank's part of a synchronous decentralized algorithm. In each iteration the rank
// makes a message, averages it with those of its neighbors, and computes its new solution.
//
// A job drives it with step() over ExchangeNeighbors. A test that holds the algorithms of all ranks
// calls prepare() and finish() of each instead. The algorithms do not know the graph. Owner thread
// only.
//
//   dgd                x = W (x - step grad(x)); to a neighborhood of the optimum that shrinks
//                      with the step (BlueFog, equations 16-17; Yuan, Ling, Yin 2016)
//   exact-diffusion    corrects that bias: y = x - step grad(x); x = V (y + x - y before), with
//                      V = (I + W) / 2 for W symmetric and doubly stochastic (BlueFog, 24-26; Yuan,
//                      Ying, Zhao, Sayed 2019, where V is what makes it stable)
//   gradient-tracking  x = W (x - step y); y = W y + grad(x) - grad(x before): y follows the
//                      average of all gradients; W doubly stochastic, and may change from step to
//                      step (Nedic, Olshevsky, Shi 2017: DIGing)
//   push-diging        the same over directed graphs, with column-stochastic W: u = W (u - step y);
//                      v = W v; x = u / v; y as above (there, too; BlueFog, 27-31, averages the
//                      change of the gradients as well, which costs another round)
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "apps/consensus/problem.h"

namespace dunlin::consensus {

enum class Method { kDgd, kExactDiffusion, kGradientTracking, kPushDiging };
const char* to_string(Method method);

// Averages with the neighbors of a rank, in one step after the other.
class Neighbors {
 public:
  virtual ~Neighbors() = default;
  // Replaces the message by w_ii message + the sum over the neighbors j of w_ij (j's message).
  virtual Status average(std::span<double> message) = 0;
};

// In iteration k (from 0) a gradient has the weight step / (k + 1)^decay.
struct StepSize {
  double step = 0.1;
  double decay = 0;
  double at(std::uint64_t iteration) const;
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;

  // Runs one iteration. Errors are those of the neighbors, and leave the algorithm unusable.
  Status step(Neighbors& neighbors);

  // The same in three parts: prepare(), averaging message() in place, finish().
  virtual void prepare() = 0;
  std::span<double> message() { return message_; }
  void finish();

  // The current solution of this rank; at first 0.
  std::span<const double> solution() const { return x_; }

 protected:
  // `message_size` is a number of elements. The problem is borrowed.
  Algorithm(const Problem& problem, std::size_t message_size);
  // Takes the solution from the averaged message, and uses the gradient there.
  virtual void take_average() = 0;
  virtual void take_gradient() {}

  std::size_t dimension() const { return x_.size(); }
  Vector x_;
  Vector gradient_;         // at x_
  Vector gradient_before_;  // at the x_ before it
  Vector message_;
  std::uint64_t iteration_ = 0;

 private:
  const Problem& problem_;
};

// kInvalidArgument for a step that is not above 0, and for a decay with a method other than dgd:
// the others are exact for a constant step only.
Result<std::unique_ptr<Algorithm>> make_algorithm(Method method, const Problem& problem,
                                                  StepSize step);

}  // namespace dunlin::consensus
