#include "apps/logreg/program/data.h"

#include <fmt/format.h>

#include "apps/svm/libsvm_reader.h"

namespace dunlin::logreg {
namespace {

// A rank holds about ten vectors of doubles of this length: 8 GiB. Otherwise a stray index in a
// file would exhaust the memory of the host.
constexpr std::uint32_t kMostFeatures = 100'000'000;

Status check_features(const std::string& source, std::uint32_t features) {
  if (features > kMostFeatures) {
    return {Code::kInvalidArgument, fmt::format("{}: {} features; a model has {} at most", source,
                                                features, kMostFeatures)};
  }
  if (features == 0) return {Code::kInvalidArgument, fmt::format("{}: no features", source)};
  return Status::ok();
}

}  // namespace

Result<svm::Dataset> load_training(const Options& options, svm::Shard shard) {
  if (options.is_generated) {
    DUNLIN_TRY(check_features("generated data", options.generate.features));
    return svm::generate(options.generate, shard);
  }
  svm::LibsvmOptions reading;
  reading.shard = shard;
  reading.has_digest = true;
  DUNLIN_ASSIGN(svm::Dataset data, svm::read_libsvm(options.train, reading));
  DUNLIN_TRY(check_features(options.train, data.features));
  return data;
}

Result<std::optional<svm::Dataset>> load_test(const Options& options, const svm::Dataset& train) {
  std::optional<svm::Dataset> test;
  if (options.is_generated) {
    svm::GeneratorOptions beyond = options.generate;
    beyond.first_row = options.generate.rows;
    beyond.rows = options.test_rows;
    DUNLIN_ASSIGN(test, svm::generate(beyond));
  } else if (!options.test.empty()) {
    svm::LibsvmOptions reading;
    reading.features = train.features;
    reading.drop_beyond = true;
    reading.label_threshold = train.label_threshold;
    DUNLIN_ASSIGN(test, svm::read_libsvm(options.test, reading));
  }
  return test;
}

}  // namespace dunlin::logreg
