// dunlin-svm: decentralized training of a linear SVM (ASAP, section 6), and prediction with it.
#include <fmt/format.h>

#include "apps/job.h"
#include "apps/svm/program/options.h"
#include "apps/svm/program/prediction.h"
#include "apps/svm/program/worker.h"
#include "runtime/print.h"

namespace dunlin::svm {
namespace {

Result<bool> train(transport::Fabric& fabric, const Options& options) {
  Worker worker(fabric, options);
  DUNLIN_TRY(worker.prepare());
  DUNLIN_ASSIGN(const bool has_reached, worker.run());
  if (!has_reached && fabric.rank() == Rank(0)) {
    print_error(
        fmt::format("dunlin-svm: the objective did not reach {}\n", *options.target_objective));
  }
  return has_reached;
}

// Prediction joins no job.
std::optional<int> run_alone(const Options& options) {
  if (options.predict.empty()) return std::nullopt;
  const Status status = predict(options);
  return status.is_ok() ? 0 : fail(status);
}

}  // namespace
}  // namespace dunlin::svm

int main(int argc, char** argv) {
  using namespace dunlin;
  return run_program(argc, argv, svm::parse_options, svm::train, svm::run_alone);
}
