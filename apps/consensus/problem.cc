#include "apps/consensus/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/random.h"

namespace dunlin::consensus {
namespace {

// The uses of a seed's streams. The data of rank r come from stream kFirstRank + r.
constexpr std::uint64_t kCommonSolution = 0;
constexpr std::uint64_t kFirstRank = 1;

struct Data {
  std::vector<Vector> rows;
  Vector targets;  // one per row
};

Vector normals(Random& random, std::size_t count) {
  Vector values(count);
  for (double& value : values) value = random.normal();
  return values;
}

Data draw(const ProblemOptions& options, int rank) {
  Random common(options.seed, kCommonSolution);
  Vector solution = normals(common, options.dimension);
  Random random(options.seed, kFirstRank + static_cast<std::uint64_t>(rank));
  for (double& value : solution) value += options.spread * random.normal();
  Data data;
  for (std::size_t row = 0; row < options.rows; ++row) {
    data.rows.push_back(normals(random, options.dimension));
    const double clean = dot(data.rows.back(), solution);
    if (options.kind == ProblemKind::kLeastSquares) {
      data.targets.push_back(clean + options.noise * random.normal());
    } else {  // a label, drawn by the logistic model
      data.targets.push_back(random.uniform() < 1 / (1 + std::exp(-clean)) ? 1 : -1);
    }
  }
  return data;
}

SymmetricMatrix mean_of_squares(const Data& data) {
  SymmetricMatrix matrix(data.rows.front().size());
  const double weight = 1 / static_cast<double>(data.rows.size());
  for (const Vector& row : data.rows) matrix.add_square(row, weight);
  return matrix;
}

class LeastSquares final : public Problem {
 public:
  explicit LeastSquares(Data data)
      : data_(std::move(data)),
        hessian_(mean_of_squares(data_)),
        smoothness_(eigenvalue_range(hessian_).largest) {}

  std::size_t dimension() const override { return hessian_.size(); }
  void gradient(std::span<const double> x, std::span<double> gradient) const override {
    std::fill(gradient.begin(), gradient.end(), 0);
    for (std::size_t row = 0; row < data_.rows.size(); ++row) {
      const Vector& a = data_.rows[row];
      const double weight =
          (dot(a, x) - data_.targets[row]) / static_cast<double>(data_.rows.size());
      for (std::size_t i = 0; i < a.size(); ++i) gradient[i] += weight * a[i];
    }
  }
  SymmetricMatrix hessian(std::span<const double>) const override { return hessian_; }
  double smoothness() const override { return smoothness_; }

 private:
  Data data_;
  SymmetricMatrix hessian_;
  double smoothness_;
};

class Logistic final : public Problem {
 public:
  Logistic(Data data, double lambda)
      : data_(std::move(data)),
        lambda_(lambda),
        // The slope of the logistic function is at most 1/4.
        smoothness_(eigenvalue_range(mean_of_squares(data_)).largest / 4 + lambda) {}

  std::size_t dimension() const override { return data_.rows.front().size(); }
  void gradient(std::span<const double> x, std::span<double> gradient) const override {
    for (std::size_t i = 0; i < x.size(); ++i) gradient[i] = lambda_ * x[i];
    for (std::size_t row = 0; row < data_.rows.size(); ++row) {
      const Vector& a = data_.rows[row];
      const double weight = -data_.targets[row] * wrong(row, x) * share();
      for (std::size_t i = 0; i < a.size(); ++i) gradient[i] += weight * a[i];
    }
  }
  SymmetricMatrix hessian(std::span<const double> x) const override {
    SymmetricMatrix matrix(dimension());
    for (std::size_t i = 0; i < dimension(); ++i) matrix(i, i) = lambda_;
    for (std::size_t row = 0; row < data_.rows.size(); ++row) {
      const double probability = wrong(row, x);
      matrix.add_square(data_.rows[row], probability * (1 - probability) * share());
    }
    return matrix;
  }
  double smoothness() const override { return smoothness_; }

 private:
  double share() const { return 1 / static_cast<double>(data_.rows.size()); }
  // The probability that model x gives to the other label.
  double wrong(std::size_t row, std::span<const double> x) const {
    return 1 / (1 + std::exp(data_.targets[row] * dot(data_.rows[row], x)));
  }

  Data data_;
  double lambda_;
  double smoothness_;
};

Status check(const ProblemOptions& options) {
  const auto refuse = [](std::string text) { return Status(Code::kInvalidArgument, text); };
  if (options.dimension == 0) return refuse("a problem needs one dimension at least");
  if (options.rows == 0) return refuse("a problem needs one row per rank at least");
  for (const auto& [name, value] : {std::pair{"noise", options.noise},
                                    {"spread", options.spread},
                                    {"lambda", options.lambda}}) {
    if (!(value >= 0) || !std::isfinite(value)) {
      return refuse(fmt::format("{} is {}, not a number of 0 or more", name, value));
    }
  }
  const bool is_logistic = options.kind == ProblemKind::kLogistic;
  if (is_logistic && options.lambda == 0) {
    return refuse(
        "logistic regression needs a lambda above 0: it has no optimum where some "
        "hyperplane divides the labels");
  }
  if (!is_logistic && options.rows < options.dimension) {
    return refuse(fmt::format("{} rows per rank don't determine a solution of {} dimensions",
                              options.rows, options.dimension));
  }
  return Status::ok();
}

}  // namespace

const char* to_string(ProblemKind kind) {
  return kind == ProblemKind::kLeastSquares ? "least-squares" : "logistic";
}

Result<std::unique_ptr<Problem>> make_problem(const ProblemOptions& options, int rank) {
  DUNLIN_TRY(check(options));
  std::unique_ptr<Problem> problem;
  if (options.kind == ProblemKind::kLeastSquares) {
    problem = std::make_unique<LeastSquares>(draw(options, rank));
  } else {
    problem = std::make_unique<Logistic>(draw(options, rank), options.lambda);
  }
  return problem;
}

Result<Optimum> find_optimum(const Problem& problem, Ranks& ranks) {
  // Least squares need one step, and a second one because of rounding. Logistic regression, a
  // strongly convex function, needs about ten.
  constexpr int kMostSteps = 100;
  const std::size_t dimension = problem.dimension();
  Optimum optimum{.x = Vector(dimension), .smoothness = problem.smoothness(), .curvature = {}};
  DUNLIN_TRY(ranks.max({&optimum.smoothness, 1}));
  SymmetricMatrix mean(dimension);
  int small_corrections = 0;
  for (int step = 0; step < kMostSteps; ++step) {
    Vector sums(dimension + dimension * dimension);  // the gradient, then the Hessian
    problem.gradient(optimum.x, {sums.data(), dimension});
    const SymmetricMatrix own = problem.hessian(optimum.x);
    std::copy(own.entries().begin(), own.entries().end(),
              sums.begin() + static_cast<std::ptrdiff_t>(dimension));
    DUNLIN_TRY(ranks.sum(sums));
    for (double& value : sums) value /= ranks.size();
    std::copy(sums.begin() + static_cast<std::ptrdiff_t>(dimension), sums.end(),
              mean.entries().begin());
    sums.resize(dimension);
    DUNLIN_ASSIGN(const Vector correction, solve(mean, std::move(sums)));
    const double size = norm(correction);
    // Far from the optimum a whole step could lead further away; near it, it squares the error.
    const double share = size > 1 && step > 0 ? 0.5 : 1;
    for (std::size_t i = 0; i < dimension; ++i) optimum.x[i] -= share * correction[i];
    if (size <= 1e-12 * norm(optimum.x) && ++small_corrections == 2) {
      optimum.curvature = eigenvalue_range(mean);
      return optimum;
    }
  }
  return Status(Code::kInternal, "Newton's method did not find the optimum");
}

}  // namespace dunlin::consensus
