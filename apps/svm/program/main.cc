// dunlin-svm: decentralised training of a linear SVM (ASAP, section 6).
#include <fmt/format.h>

#include "apps/job.h"
#include "apps/svm/program/options.h"
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

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  return run_job(options->transport,
                 [&](transport::Fabric& fabric) { return train(fabric, *options); });
}

}  // namespace
}  // namespace dunlin::svm

int main(int argc, char** argv) {
  return dunlin::svm::main(argc, argv);
}
