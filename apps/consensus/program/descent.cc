// The commands dgd, exact-diffusion, gradient-tracking and push-diging.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/consensus/program/runs.h"

namespace dunlin::consensus {
namespace {

Json optional(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

class Descent {
 public:
  explicit Descent(Setting& setting)
      : setting_(setting), options_(setting.options), ranks_(setting.communicator) {}

  Status prepare();
  Status run();
  Result<bool> report();

 private:
  Status check_exact_diffusion() const;
  double gradient_descent_rate() const;
  std::optional<double> averaging_rate() const;
  Result<std::optional<double>> consensus_bound();

  Setting& setting_;
  const Options& options_;
  CommunicatorRanks ranks_;
  std::unique_ptr<Problem> problem_;
  std::optional<Topology> topology_;
  Optimum optimum_;
  double step_ = 0;
  std::unique_ptr<Algorithm> algorithm_;
  Trajectory trajectory_;
};

Status Descent::check_exact_diffusion() const {
  if (!topology_->is_static()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("exact-diffusion needs a graph that stays as it is, not '{}'; "
                              "gradient-tracking and push-diging don't",
                              options_.graph));
  }
  const auto rate = topology_->exact_diffusion_rate();
  if (rate && *rate < 1) return Status::ok();
  return Status(
      Code::kInvalidArgument,
      fmt::format("exact-diffusion {} over '{}' of {} ranks, which is directed; take an undirected "
                  "graph (bidirectional-ring, ...), or gradient-tracking",
                  rate ? fmt::format("grows by x {:.3f} per iteration", *rate)
                       : std::string("is not known to converge"),
                  options_.graph, topology_->ranks()));
}

Status Descent::prepare() {
  const int rank = setting_.fabric.rank().value();
  const Style style =
      options_.method == Method::kPushDiging ? Style::kPush : Style::kDoublyStochastic;
  DUNLIN_ASSIGN(topology_, Topology::make(options_.graph, setting_.fabric.size(), style));
  if (options_.method == Method::kExactDiffusion) DUNLIN_TRY(check_exact_diffusion());
  DUNLIN_ASSIGN(problem_, make_problem(options_.problem, rank));
  DUNLIN_ASSIGN(optimum_, find_optimum(*problem_, ranks_));
  step_ = options_.step / optimum_.smoothness;
  DUNLIN_ASSIGN(algorithm_, make_algorithm(options_.method, *problem_, {step_, options_.decay}));

  const ProblemOptions& problem = options_.problem;
  return setting_.output.event("config", {{"algorithm", name_of(options_)},
                                          {"ranks", setting_.fabric.size()},
                                          {"graph", options_.graph},
                                          {"problem", to_string(problem.kind)},
                                          {"dimension", problem.dimension},
                                          {"rows", problem.rows},
                                          {"seed", problem.seed},
                                          {"iterations", options_.iterations},
                                          {"step", step_},
                                          {"step_factor", options_.step},
                                          {"decay", options_.decay},
                                          {"smoothness", optimum_.smoothness},
                                          {"curvature_min", optimum_.curvature.smallest},
                                          {"curvature_max", optimum_.curvature.largest},
                                          {"sigma_2", optional(topology_->sigma_2())}});
}

Status Descent::run() {
  transport::Fabric& fabric = setting_.fabric;
  DUNLIN_ASSIGN(const auto exchange, collective::NeighborExchange::create(fabric, {}));
  ExchangeNeighbors neighbors(*exchange, *topology_, fabric.rank());
  trajectory_.record(0, algorithm_->solution());
  for (std::uint64_t iteration = 1; iteration <= options_.iterations; ++iteration) {
    fabric.begin_step(iteration);
    DUNLIN_TRY(algorithm_->step(neighbors));
    if (iteration % options_.record_every == 0 || iteration == options_.iterations) {
      trajectory_.record(iteration, algorithm_->solution());
    }
  }
  // Neighbors may still need this end of the exchange.
  return fabric.bootstrap().barrier("descent", fabric.config().deadline);
}

// The factor per iteration that one rank with all data would reach near the optimum, with this
// step.
double Descent::gradient_descent_rate() const {
  return std::max(std::abs(1 - step_ * optimum_.curvature.smallest),
                  std::abs(1 - step_ * optimum_.curvature.largest));
}

// The factor by which the disagreement of the ranks fades in one averaging. For small steps the
// methods reach the slower one of this and gradient descent.
std::optional<double> Descent::averaging_rate() const {
  if (options_.method == Method::kExactDiffusion) return topology_->exact_diffusion_rate();
  return topology_->sigma_2();
}

// Where dgd has come to rest, the disagreement D and the gradients G of all ranks satisfy D = (W -
// J) (D - step G). Hence |D| <= step sigma_2 / (1 - sigma_2) |G|. The bound is relative to |x*|.
Result<std::optional<double>> Descent::consensus_bound() {
  Vector gradient(problem_->dimension());
  problem_->gradient(algorithm_->solution(), gradient);
  double sum = dot(gradient, gradient);
  DUNLIN_TRY(ranks_.sum({&sum, 1}));
  const auto sigma_2 = topology_->sigma_2();
  if (options_.method != Method::kDgd || options_.decay > 0 || !sigma_2 || *sigma_2 >= 1) {
    return std::optional<double>();
  }
  const double rms = std::sqrt(sum / ranks_.size()) / norm(optimum_.x);
  return std::optional(step_ * *sigma_2 / (1 - *sigma_2) * rms);
}

Result<bool> Descent::report() {
  DUNLIN_ASSIGN(const auto history, trajectory_.compare(optimum_.x, ranks_));
  DUNLIN_ASSIGN(const auto bound, consensus_bound());
  Output& output = setting_.output;
  DUNLIN_TRY(output.say(fmt::format(
      "{} over '{}', {} ranks: {}, {} unknowns, step {:.4g} = {:g} / L", name_of(options_),
      options_.graph, ranks_.size(), to_string(options_.problem.kind), options_.problem.dimension,
      step_, options_.step)));
  DUNLIN_TRY(output.history(history, "iteration"));
  const auto rate = fitted_rate(history);
  const Moment& last = history.back();
  DUNLIN_TRY(output.event("final", {{"iteration", last.iteration},
                                    {"error_max", last.error_max},
                                    {"error_rms", last.error_rms},
                                    {"consensus_error", last.consensus},
                                    {"rate", optional(rate)},
                                    {"rate_gradient_descent", gradient_descent_rate()},
                                    {"rate_averaging", optional(averaging_rate())},
                                    {"consensus_bound", optional(bound)}}));
  if (rate) {
    DUNLIN_TRY(output.say(fmt::format("error per iteration: x {:.5f} (fitted)", *rate)));
  }
  DUNLIN_TRY(output.say(
      fmt::format("  gradient descent on all data, same step: x {:.5f}", gradient_descent_rate())));
  if (averaging_rate()) {
    DUNLIN_TRY(output.say(
        fmt::format("  averaging over this graph, no gradients: x {:.5f}", *averaging_rate())));
  }
  if (bound) {
    DUNLIN_TRY(output.say(fmt::format("disagreement at rest: {:.3e}, by theory at most {:.3e}",
                                      last.consensus, *bound)));
  }
  return judge(setting_, last.error_max);
}

}  // namespace

Result<bool> run_descent(Setting& setting) {
  Descent descent(setting);
  DUNLIN_TRY(descent.prepare());
  DUNLIN_TRY(descent.run());
  return descent.report();
}

}  // namespace dunlin::consensus
