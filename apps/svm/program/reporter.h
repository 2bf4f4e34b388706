// Reporter: evaluates models and reports the progress of the training, as JSON lines and on the
// terminal. Only the leader of the group has one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/members.h"
#include "apps/svm/evaluate.h"
#include "apps/svm/program/data.h"
#include "apps/svm/program/totals.h"

namespace dunlin::svm {

// Describes the run, for the first line.
struct RunInfo {
  int workers = 1;
  std::string launcher;
  std::string transports;  // "shm" or "shm+ucx": the transports of the links
  std::uint64_t total_rows = 0;
  std::uint64_t exchanges = 0;  // planned
  double eta0 = 0;
};

// A point of the training.
struct Moment {
  double time_s = 0;
  std::uint64_t exchange = 0;  // since the very beginning, resumed runs included
  std::uint64_t examples = 0;  // of all workers
  Totals totals;               // of this worker, in this run
};

class Reporter {
 public:
  // Loads the evaluation data and opens the output. With `is_continued`, appends to the output.
  static Result<std::unique_ptr<Reporter>> create(const Options& options, bool is_continued);

  Status start(const RunInfo& info);
  // Evaluates without reporting, so that the caller can time an evaluation.
  void evaluate_once(std::span<const float> model) const;
  // Reports the progress. Returns the objective of the model, or nothing when evaluation is
  // deferred.
  Result<std::optional<double>> progress(const Moment& moment, std::span<const float> model);
  // Reports a change of the workers, before the exchange after `exchange`.
  Status change(double time_s, std::uint64_t exchange, const MembersChange& change);
  // Evaluates and reports the deferred models.
  Status flush();
  // Evaluates the deferred models, then reports the end. `all` is the sum over all workers.
  Status finish(double time_s, const Totals& own, const Totals& all, std::uint64_t epoch);

 private:
  struct Snapshot {
    Moment moment;
    std::vector<float> model;
  };
  explicit Reporter(const Options& options) : options_(options) {}
  Status tell(const Moment& moment, std::span<const float> model);
  void display(const Moment& moment) const;

  const Options& options_;
  EvaluationData data_;
  Teller teller_;
  std::vector<Snapshot> snapshots_;
  std::uint64_t planned_ = 0;
  double objective_ = 0;
  double test_error_ = 0;
};

}  // namespace dunlin::svm
