// Reads LIBSVM files. The file is mapped and parsed by several threads, and one rank's shard is
// kept.
//
// Every rank parses every row. The number of features and the coding of the labels are properties
// of the whole file, and all ranks report the same first malformed line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "apps/svm/dataset.h"
#include "runtime/status.h"

namespace dunlin::svm {

struct LibsvmOptions {
  Shard shard{};
  // The number of features; 0: as many as the file's largest index. A row's values beyond it are an
  // error, or dropped and counted where `drop_beyond` is set. For a test file: a feature that no
  // training row has carries no weight, so dropping it changes no prediction.
  std::uint32_t features = 0;
  bool drop_beyond = false;
  // Labels above it become +1, others -1. Without it, the labels of the file must be -1/+1, 0/1 or
  // 1/2; in a file with one class only, label 1 counts as +1.
  std::optional<float> label_threshold{};
  bool has_digest = false;  // read_libsvm() sets Dataset::whole
  unsigned threads = 0;     // 0: one per core
  // How much a thread parses at a time. It is large enough that handing out work costs nothing, and
  // small enough that the threads finish together.
  std::size_t chunk_bytes = std::size_t{1} << 20;
};

// Blocks until the file is read. kInvalidArgument for a malformed line, "file:line:column:
// problem", which always is the first one of the file, and for a file without rows. A shard may
// have no rows.
Result<Dataset> read_libsvm(const std::string& path, const LibsvmOptions& options = {});

// Reads from memory; `name` stands for the file in error messages.
Result<Dataset> parse_libsvm(std::string_view name, std::string_view text,
                             const LibsvmOptions& options = {});

}  // namespace dunlin::svm
