// Trainer: a whole run of dunlin-cnn on one rank: images, network, the training with a
// Synchronizer, checkpoints, the end. Owner thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/checkpoint_files.h"
#include "apps/checkpoint_search.h"
#include "apps/cnn/batches.h"
#include "apps/cnn/checkpoint.h"
#include "apps/cnn/network.h"
#include "apps/cnn/program/data.h"
#include "apps/cnn/program/output.h"
#include "apps/cnn/program/team.h"
#include "apps/interrupt.h"
#include "collectives/training/synchronizer.h"

namespace dunlin::cnn {

// Running means over about the last kWindow values. In the beginning all values have the same
// weight; later, older values weigh less.
class RunningMeans {
 public:
  void add(double loss, double accuracy);

  double loss = 0;
  double accuracy = 0;
  std::uint64_t batches = 0;

 private:
  static constexpr std::uint64_t kWindow = 50;
};

// The longest time that the ranks may take before the training, for reading and a trial iteration.
inline constexpr Duration kLongestPreparation = std::chrono::minutes(30);

class Trainer {
 public:
  // Borrows its arguments for its lifetime.
  Trainer(transport::Fabric& fabric, const Options& options, Output& output);

  // Collective. False: --target-loss was not reached.
  Result<bool> run();

 private:
  enum class Wish { kNone, kIterations, kTarget, kDuration, kSignal };
  static const char* to_string(Wish wish);

  Status prepare();
  std::uint64_t per_epoch(std::uint32_t workers) const;
  Status check_sections() const;
  Status choose_device();
  Status make_network(Architecture architecture);
  Status agree_on_run();
  std::string settings() const;
  Result<Duration> find_timeout();
  Result<Duration> time_of_an_iteration();
  Status start(Duration timeout);
  Status find_checkpoint();
  Result<Checkpoint> resumed_state(const FoundCheckpoint& found, const Checkpoint& current);
  Status go_on_from(const FoundCheckpoint& found);
  Status tell_beginning();

  Status train();
  Status step();
  Status before_step();
  Wish wish() const;
  std::uint64_t end_step() const;
  double learning_rate() const;
  double training_time() const;
  std::uint64_t every(std::uint64_t asked, std::uint64_t times) const;
  std::uint64_t checkpoint_every() const;
  Moment moment() const;
  Result<Checkpoint> checkpoint();
  Status save_checkpoint();

  Result<TestResult> test();
  Result<bool> conclude();
  Status gather(Duration timeout);
  Status tell_end(const std::vector<Totals>& all, const std::vector<float>& mean);
  Result<TestResult> test(const std::vector<float>& model);

  transport::Fabric& fabric_;
  const Options& options_;
  Output& output_;
  Team team_;
  training::MethodOptions method_;

  Data data_;
  std::optional<Batches> batches_;
  std::optional<Batches> test_batches_;
  std::unique_ptr<Device> device_;    // workers only
  std::unique_ptr<Network> network_;  // workers only
  std::size_t parameters_ = 0;
  std::size_t statistics_ = 0;
  std::unique_ptr<training::Synchronizer> sync_;
  training::Slowdown slowdown_;
  const Interrupt* interrupt_ = nullptr;  // on the stack of run()
  CheckpointRotation files_;
  std::optional<FoundCheckpoint> found_;  // to continue from

  std::uint64_t run_ = 0;        // identifies the run in checkpoints
  std::uint64_t iteration_ = 0;  // how many were done, in this run and those that it resumes
  std::uint64_t first_ = 0;      // the iteration where this run began
  std::uint64_t planned_ = 0;    // the last iteration
  RunningMeans means_;
  Wish wish_ = Wish::kNone;  // the first reason of this rank to end
  bool is_over_ = false;
  training::MethodReport report_;
  double compute_s_ = 0;
  double time_s_ = 0;
  TimePoint began_{};
  Duration paused_{};         // time of evaluations, which does not count as training
  std::vector<float> model_;  // parameters, then statistics; of a worker, after the training
};

}  // namespace dunlin::cnn
