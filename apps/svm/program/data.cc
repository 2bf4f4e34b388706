#include "apps/svm/program/data.h"

#include <fmt/format.h>

#include <span>
#include <string>

#include "apps/svm/input_file.h"
#include "apps/svm/libsvm_reader.h"

namespace dunlin::svm {

Result<Dataset> load_shard(const Options& options, Shard shard) {
  if (options.is_generated) return generate(options.generate, shard);
  LibsvmOptions reading;
  reading.shard = shard;
  return read_libsvm(options.train, reading);
}

Result<Digest> digest_of_set(const Options& options) {
  if (options.is_generated) {
    const GeneratorOptions& set = options.generate;
    const std::string text =
        fmt::format("{} {} {} {} {} {}", set.rows, set.features, set.nonzeros_per_row, set.flipped,
                    set.seed, set.first_row);
    return digest_of({std::as_bytes(std::span(text))});
  }
  DUNLIN_ASSIGN(const InputFile file, InputFile::open(options.train));
  return digest_of({std::as_bytes(std::span(file.bytes()))});
}

Result<EvaluationData> load_evaluation_data(const Options& options) {
  EvaluationData data;
  DUNLIN_ASSIGN(data.train, load_shard(options, {}));
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
