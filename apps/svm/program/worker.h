// Worker: one rank's training run, from its data to its totals.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/interrupt.h"
#include "apps/members.h"
#include "apps/shards.h"
#include "apps/svm/average.h"
#include "apps/svm/learner.h"
#include "apps/svm/program/checkpoints.h"
#include "apps/svm/program/group.h"
#include "apps/svm/program/reporter.h"
#include "apps/svm/program/standing.h"
#include "apps/svm/program/stop_signal.h"
#include "apps/svm/program/totals.h"

namespace dunlin::svm {

class Worker {
 public:
  // Borrows its arguments for its lifetime.
  Worker(transport::Fabric& fabric, const Options& options);

  // Reads the data and joins the group. Blocks until all ranks are ready, or, after a death and
  // where --on-peer-loss says so, until all survivors are. A rank that joins the running job blocks
  // until the members take it in.
  Status prepare();
  // Trains to the end, or, in a job that may grow, until SIGTERM asks this rank to leave. False:
  // --target-objective was not reached.
  Result<bool> run();

 private:
  Status load_data();
  const Dataset& data() const { return shards_->data(); }
  void begin();
  // What the members do together before the first exchange. It can be repeated in another epoch.
  Status start();
  // Collective: returns on every member what `find` returns on the first one. It is called there
  // alone.
  Result<std::uint64_t> found_by_leader(const std::string& what,
                                        const std::function<Result<std::uint64_t>()>& find);
  Status agree_on_eta0();
  Status agree_on_run();
  Status allow_for_evaluations();
  Status make_learner(const LearnerState* state);
  Status resume();
  std::uint64_t planned_exchanges() const;
  // What all members have to have in common, and newcomers with them.
  Terms terms() const;
  // What ranks have to have in common that start together, which is more.
  Terms terms_of_start() const;
  Status make_reporter(bool is_continued);
  std::string transports() const;

  Status refresh_data();
  Status train_step();
  void straggle(double compute_s) const;
  Status follow_up(std::uint64_t eval_every, std::uint64_t save_every);
  // Returns the outcome, or that of a new group if a member's death was its cause.
  Status survive(Status outcome);

  std::uint32_t founders() const { return static_cast<std::uint32_t>(members_.founders()); }
  // The newcomer's way into the group.
  Status arrive();
  // Trains where the members stay, and otherwise changes them.
  Status take_turn(std::uint64_t eval_every, std::uint64_t save_every);
  Status change_members();
  Status end(std::optional<Totals>& all);
  // What the members of a new epoch do together.
  Status regroup();
  Standing standing() const;
  // Takes over what the members of the new epoch tell one another.
  void take_over(const std::vector<Standing>& standings);
  Status change_reporter();
  Status start_again();
  void drop_group();
  Status report_progress(bool is_last);
  Status check_target(double objective, bool is_last);
  Status save_checkpoint();
  Checkpoint checkpoint() const;
  Status finish(std::optional<Totals>& all);
  // The model that is evaluated and saved: the average of this rank's models where --average asks
  // for it, otherwise the model itself.
  std::span<const float> result() const;
  Status save_result() const;
  double training_time() const;

  transport::Fabric& fabric_;
  const Options& options_;
  LearnerOptions learning_;
  Members members_;
  std::optional<Shards<Dataset>> shards_;
  Digest digest_{};  // of data(), if there are checkpoints
  Stage stage_ = Stage::kPreparing;
  std::unique_ptr<Group> group_;
  std::optional<Learner> learner_;
  ModelAverage average_;                // empty unless --average was given
  std::unique_ptr<Reporter> reporter_;  // on the leader only
  std::unique_ptr<StopSignal> stop_;
  std::optional<Interrupt> retire_;  // SIGTERM, while it trains in a job that may grow
  bool has_left_ = false;
  bool has_warned_ = false;  // that no checkpoints are saved any more
  CheckpointWriter checkpoints_{options_.checkpoint,
                                static_cast<std::uint32_t>(fabric_.rank().value()), founders()};

  std::uint64_t run_ = 0;            // identifies the run in checkpoints
  std::uint64_t exchange_ = 0;       // how many were done, in this run and those that it resumes
  std::uint64_t last_exchange_ = 0;  // the training stops after it
  std::optional<std::uint64_t> reported_;  // the exchange of the last report
  std::uint64_t examples_ = 0;             // of all workers, in this run and those that it resumes
  Totals totals_;
  TimePoint began_{};
  Duration paused_{};  // the time of evaluations, which does not count as training

  // What a newcomer has learned from the members, for the group and the learner that it is to make:
  std::uint64_t schedule_ = 0;
  Duration absence_{};
};

}  // namespace dunlin::svm
