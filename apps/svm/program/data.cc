#include "apps/svm/program/data.h"

#include "apps/svm/libsvm_reader.h"

namespace dunlin::svm {

// Which rows are in a skewed shard depends on the whole set.
Result<Dataset> load_shard(const Options& options, Shard shard) {
  if (options.shard_skew.is_none()) return load_dealt_rows(options, shard);
  DUNLIN_ASSIGN(const Dataset whole, load_dealt_rows(options, {}));
  return skewed_shard(whole, options.shard_skew, shard);
}

Result<Dataset> load_dealt_rows(const Options& options, Shard shard) {
  if (options.is_generated) return generate(options.generate, shard);
  LibsvmOptions reading;
  reading.shard = shard;
  reading.has_digest = true;
  return read_libsvm(options.train, reading);
}

Result<EvaluationData> load_evaluation_data(const Options& options) {
  EvaluationData data;
  DUNLIN_ASSIGN(data.train, load_dealt_rows(options, {}));
  if (options.is_generated) {
    GeneratorOptions beyond = options.generate;
    beyond.first_row = options.generate.rows;
    beyond.rows = options.test_rows;
    DUNLIN_ASSIGN(data.test, generate(beyond));
  } else if (!options.test.empty()) {
    LibsvmOptions reading;
    reading.features = data.train.features;
    reading.drop_beyond = true;
    reading.label_threshold = data.train.label_threshold;
    DUNLIN_ASSIGN(data.test, read_libsvm(options.test, reading));
  }
  return data;
}

}  // namespace dunlin::svm
