// Trainer: a whole run of dunlin-cnn on one rank: images, network, the training with a
// Synchronizer, checkpoints, the end. Owner thread only.
//
// Where the method can be made anew for other members (training::takes_newcomers), workers may join
// and leave while it trains, and the others go on when one dies (apps/members.h). Then all members
// make a Synchronizer of their own for each epoch, between two iterations.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/checkpoint_files.h"
#include "apps/checkpoint_search.h"
#include "apps/cnn/checkpoint.h"
#include "apps/cnn/network.h"
#include "apps/cnn/program/data.h"
#include "apps/cnn/program/examiner.h"
#include "apps/cnn/program/feed.h"
#include "apps/cnn/program/model_state.h"
#include "apps/cnn/program/output.h"
#include "apps/cnn/program/standing.h"
#include "apps/cnn/program/team.h"
#include "apps/interrupt.h"
#include "apps/members.h"
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

  Status check_options() const;
  Status prepare();
  Status load_images();
  Status check_sections() const;
  Status choose_device();
  Status make_network(Architecture architecture);
  Status agree_on_run();
  std::string settings() const;
  Result<Duration> find_timeout();
  Result<Duration> time_of_an_iteration();
  Status start();
  Status make_synchronizer();
  Status find_checkpoint();
  Result<Checkpoint> resumed_state(const FoundCheckpoint& found, const Checkpoint& current);
  Status go_on_from(const FoundCheckpoint& found);
  Status tell_beginning();

  // False: this rank has left the job.
  Result<bool> train();
  Status step();
  // After the last iteration.
  Status end();
  bool wants_to_end() const;
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

  // changes.cc: how the members change.
  bool takes_newcomers() const { return training::takes_newcomers(method_); }
  // What all members have to have in common, and newcomers with them.
  Terms terms() const;
  // What ranks have to have in common that start together, which is more.
  Terms terms_of_start() const;
  Status arrive();
  // An iteration, or a change of the members before it.
  Status take_turn();
  // Asks the bootstrap. False in jobs that are not elastic.
  Result<bool> ask_whether(const std::function<Result<bool>()>& members_change);
  Status change_members();
  Status survive(Status outcome);
  Status end_synchronizer();
  Status regroup();
  Standing standing() const;
  void take_over(const std::vector<Standing>& standings);
  Status hand_over(const std::vector<Standing>& standings);
  Status change_output();

  Result<bool> conclude();
  Status gather();
  Status tell_end(const std::vector<Totals>& all, const std::vector<float>& model,
                  const std::vector<float>& mean);

  transport::Fabric& fabric_;
  const Options& options_;
  Output& output_;
  Members members_;
  Team team_;
  training::MethodOptions method_;

  Data data_;
  std::optional<Feed> feed_;  // workers only
  Examiner examiner_;
  std::unique_ptr<Device> device_;    // workers only
  std::unique_ptr<Network> network_;  // workers only
  std::size_t parameters_ = 0;
  std::size_t statistics_ = 0;
  std::unique_ptr<training::Synchronizer> sync_;  // null while the members change, and at the end
  training::Slowdown slowdown_;
  const Interrupt* interrupt_ = nullptr;  // on the stack of run()
  CheckpointRotation files_;
  std::optional<FoundCheckpoint> found_;  // to continue from

  std::uint64_t run_ = 0;        // identifies the run in checkpoints
  std::uint64_t iteration_ = 0;  // how many were done, in this run and those that it resumes
  std::uint64_t first_ = 0;      // the iteration where this run began
  std::uint64_t planned_ = 0;    // the last iteration
  std::uint64_t per_epoch_ = 0;  // iterations; that of the start, whatever becomes of the workers
  Duration timeout_{};           // for one iteration of other ranks
  RunningMeans means_;
  Wish wish_ = Wish::kNone;  // the first reason of this rank to end
  bool is_over_ = false;
  bool is_done_ = false;     // so are all others
  bool has_left_ = false;    // the job, before its end
  bool has_model_ = false;   // of the training
  bool has_warned_ = false;  // that no checkpoints are saved any more
  training::MethodReport report_;
  training::MethodReport past_;  // of the synchronizers before this one
  double compute_s_ = 0;
  double time_s_ = 0;
  TimePoint began_{};
  double before_joining_s_ = 0;  // time of the training when this rank was not there yet
  Duration paused_{};            // time of evaluations, which does not count as training
  ModelState state_;             // of a worker, while there is no synchronizer
  // The parameters before this iteration, if its average may leave them undefined after a death.
  std::vector<float> safe_;
};

}  // namespace dunlin::cnn
