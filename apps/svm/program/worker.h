// Worker: one rank's training run, from its data to its totals.
#pragma once

#include <memory>
#include <optional>

#include "apps/svm/learner.h"
#include "apps/svm/program/checkpoints.h"
#include "apps/svm/program/group.h"
#include "apps/svm/program/reporter.h"
#include "apps/svm/program/stop_signal.h"
#include "apps/svm/program/totals.h"

namespace dunlin::svm {

class Worker {
 public:
  // Everything is borrowed for the worker's lifetime.
  Worker(transport::Fabric& fabric, const Options& options) : fabric_(fabric), options_(options) {}

  // Reads the data and joins the group; blocks until all ranks are there.
  Status prepare();
  // Trains to the end. False: --target-objective was not reached.
  Result<bool> run();

 private:
  Status load_data();
  template <typename Find>
  Result<std::uint64_t> told_by_rank_0(std::string_view what, Find&& find);
  Status agree_on_eta0();
  Status agree_on_run();
  Status allow_for_evaluations();
  Status make_learner(const LearnerState* state);
  Status resume();
  std::uint64_t planned_exchanges() const;
  Status make_reporter(bool is_continued);
  std::string transports() const;

  Status train_step();
  void straggle(double compute_s) const;
  Status follow_up(std::uint64_t eval_every, std::uint64_t save_every);
  Status survive(Status loss);
  Status report_progress(bool is_last);
  Status check_target(double objective, bool is_last);
  Status save_checkpoint();
  Checkpoint checkpoint() const;
  Result<Totals> collect_totals();
  std::string totals_key(Rank rank) const;
  Result<Totals> await_totals(Rank member);
  double training_time() const;

  transport::Fabric& fabric_;
  const Options& options_;
  LearnerOptions learning_;
  Dataset data_;
  std::unique_ptr<Group> group_;
  std::optional<Learner> learner_;
  std::unique_ptr<Reporter> reporter_;  // the leader's
  std::unique_ptr<StopSignal> stop_;
  CheckpointWriter checkpoints_{options_.checkpoint, fabric_.rank()};

  std::uint64_t run_ = 0;            // of which checkpoints are
  std::uint64_t exchange_ = 0;       // done, in this run and those that it resumes
  std::uint64_t last_exchange_ = 0;  // after which to stop
  Totals totals_;
  TimePoint began_{};
  Duration paused_{};  // in evaluations, which don't count as training
};

}  // namespace dunlin::svm
