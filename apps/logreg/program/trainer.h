// Trainer: a whole run of dunlin-logreg on one rank: data, reference, ADMM over a communicator,
// report. Owner thread only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "apps/logreg/admm.h"
#include "apps/logreg/program/options.h"
#include "apps/logreg/program/output.h"
#include "collectives/communicator/communicator.h"

namespace dunlin::logreg {

class Trainer {
 public:
  Trainer(collective::Communicator& communicator, const Options& options, Output& output,
          const Clock& clock)
      : communicator_(communicator), options_(options), output_(output), clock_(clock) {}

  // Collective. False: --target-error was not reached.
  Result<bool> run();

 private:
  enum class Stop { kNone, kResiduals, kTarget, kIterations };

  bool is_first() const { return communicator_.rank() == 0; }
  Result<std::span<double>> allocate(std::size_t count);
  Status load();
  Status agree_on_data();
  Status start();
  Status solve_reference();
  Status agree_on_reference();
  Status iterate();
  Status judge();
  Status not_finite(const char* what) const;
  // The timed all-reduce of x + u.
  collective::Call sum_of_messages() const;
  // Reduces a few values in place.
  Status combine(std::span<double> values, collective::ReduceOp op);
  Result<Times> slowest(Duration compute, Duration sync);
  Stop stop_after(const Moment& moment) const;
  Status finish();
  Result<Json> times_by_rank();

  collective::Communicator& communicator_;
  const Options& options_;
  Output& output_;
  const Clock& clock_;

  svm::Dataset data_;                 // this rank's rows
  std::optional<svm::Dataset> test_;  // on rank 0
  std::optional<Design> design_;
  std::optional<double> optimum_;  // the reference's objective

  // Memory of the communicator: for x + u, and for values that judge the iteration.
  std::span<double> message_;
  std::span<double> few_;
  std::optional<ConsensusAdmm> admm_;
  Moment moment_;
  Stop stop_ = Stop::kNone;
  Times sum_;  // of all iterations
  double own_compute_s_ = 0;
  double own_sync_s_ = 0;
};

}  // namespace dunlin::logreg
