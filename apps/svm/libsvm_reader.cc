#include "apps/svm/libsvm_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "apps/svm/input_file.h"
#include "apps/svm/labels.h"
#include "apps/svm/libsvm_line.h"
#include "runtime/bytes.h"

namespace dunlin::svm {
namespace {

// A run of whole lines, with what was counted and then parsed from it.
struct Chunk {
  explicit Chunk(std::string_view whole_lines) : text(whole_lines) {}

  std::string_view text;
  std::uint64_t lines = 0;
  std::uint64_t rows = 0;
  std::uint64_t first_line = 1;  // in the file, from 1
  std::uint64_t first_row = 0;   // in the file, from 0

  std::vector<std::uint64_t> row_end;  // of the shard's rows, in `indices`
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  std::vector<float> labels;           // in the file's coding
  std::vector<std::uint64_t> numbers;  // of the shard's rows, in the file
  LabelSet label_set;                  // of all rows
  std::uint32_t features = 0;
  std::uint64_t dropped_values = 0;
  std::uint64_t error_line = 0;
  std::optional<LineError> error;
};

std::vector<Chunk> split(std::string_view text, std::size_t chunk_bytes) {
  std::vector<Chunk> chunks;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n', std::min(chunk_bytes, text.size()) - 1);
    const std::size_t length = newline == text.npos ? text.size() : newline + 1;
    chunks.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return chunks;
}

// Calls `work` for every chunk, on several threads; returns when all are done.
void for_each_chunk(std::vector<Chunk>& chunks, unsigned threads,
                    const std::function<void(Chunk&)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto worker = [&] {
    for (std::size_t i = next.fetch_add(1); i < chunks.size(); i = next.fetch_add(1)) {
      work(chunks[i]);
    }
  };
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < std::min<std::size_t>(threads, chunks.size()); ++i) {
    helpers.emplace_back(worker);
  }
  worker();
}

void count_rows(Chunk& chunk) {
  for (std::string_view rest = chunk.text; !rest.empty(); ++chunk.lines) {
    if (holds_row(next_line(rest))) ++chunk.rows;
  }
}

// Parses up to the first malformed line of the chunk.
void parse_chunk(Chunk& chunk, const LibsvmOptions& options) {
  const std::uint32_t limit = options.features > 0 ? options.features : UINT32_MAX;
  RowSink sink{chunk.indices, chunk.values, limit, options.drop_beyond};
  std::uint64_t line_number = chunk.first_line;
  std::uint64_t row = chunk.first_row;
  for (std::string_view rest = chunk.text; !rest.empty(); ++line_number) {
    const std::string_view line = next_line(rest);
    if (!holds_row(line)) continue;
    const std::size_t kept_values = chunk.indices.size();
    const std::uint64_t kept_dropped = sink.dropped_values;
    float label = 0;
    if (auto error = parse_row(line, label, sink)) {
      chunk.error = std::move(error);
      chunk.error_line = line_number;
      return;
    }
    chunk.label_set.add({label, line_number, line.find_first_not_of(" \t") + 1});
    if (options.shard.owns(row++)) {
      chunk.numbers.push_back(row - 1);
      chunk.labels.push_back(label);
      chunk.row_end.push_back(chunk.indices.size());
    } else {
      chunk.indices.resize(kept_values);
      chunk.values.resize(kept_values);
      sink.dropped_values = kept_dropped;
    }
  }
  chunk.features = sink.features;
  chunk.dropped_values = sink.dropped_values;
}

Status located(std::string_view name, std::uint64_t line, std::size_t column,
               std::string_view text) {
  return {Code::kInvalidArgument, fmt::format("{}:{}:{}: {}", name, line, column, text)};
}

Status first_error(std::string_view name, const std::vector<Chunk>& chunks) {
  for (const Chunk& chunk : chunks) {
    if (chunk.error) return located(name, chunk.error_line, chunk.error->column, chunk.error->text);
  }
  return Status::ok();
}

Result<float> label_threshold(std::string_view name, const std::vector<Chunk>& chunks) {
  LabelSet labels;
  for (const Chunk& chunk : chunks) {
    for (const LabelSet::Seen& seen : chunk.label_set.seen()) labels.add(seen);
  }
  const LabelCoding coding = coding_of(labels);
  if (coding.threshold) return *coding.threshold;
  const LabelSet::Seen& first = labels.seen().front();
  const LabelSet::Seen& misfit = *coding.misfit;
  std::string text = fmt::format("label {}", misfit.label);
  if (misfit.line != first.line) text += fmt::format(" after {}", first.label);
  return located(name, misfit.line, misfit.column,
                 text + ": the labels must be -1 and +1, 0 and 1 or 1 and 2 (or set a threshold)");
}

// Appends the rows of the chunks in order. The memory of each chunk is freed after copying it.
void append(std::vector<Chunk>& chunks, unsigned threads, Dataset& data) {
  std::uint64_t rows = 0;
  std::uint64_t values = 0;
  struct Place {
    std::uint64_t row;
    std::uint64_t value;
  };
  std::vector<Place> places;
  for (const Chunk& chunk : chunks) {
    places.push_back({rows, values});
    rows += chunk.labels.size();
    values += chunk.indices.size();
  }
  data.row_begin.resize(rows + 1);
  data.labels.resize(rows);
  data.numbers.resize(rows);
  data.indices.resize(values);
  data.values.resize(values);
  for_each_chunk(chunks, threads, [&](Chunk& chunk) {
    const Place place = places[static_cast<std::size_t>(&chunk - chunks.data())];
    std::copy(chunk.indices.begin(), chunk.indices.end(), data.indices.begin() + place.value);
    std::copy(chunk.values.begin(), chunk.values.end(), data.values.begin() + place.value);
    std::copy(chunk.numbers.begin(), chunk.numbers.end(), data.numbers.begin() + place.row);
    for (std::size_t i = 0; i < chunk.labels.size(); ++i) {
      data.labels[place.row + i] = chunk.labels[i] > data.label_threshold ? 1.0F : -1.0F;
      data.row_begin[place.row + i + 1] = place.value + chunk.row_end[i];
    }
    chunk = Chunk({});
  });
}

}  // namespace

Result<Dataset> parse_libsvm(std::string_view name, std::string_view text,
                             const LibsvmOptions& options) {
  std::vector<Chunk> chunks = split(text, std::max<std::size_t>(options.chunk_bytes, 1));
  for_each_chunk(chunks, options.threads, count_rows);
  Dataset data;
  std::uint64_t lines = 0;
  for (Chunk& chunk : chunks) {
    chunk.first_line = lines + 1;
    chunk.first_row = data.total_rows;
    lines += chunk.lines;
    data.total_rows += chunk.rows;
  }
  for_each_chunk(chunks, options.threads, [&](Chunk& chunk) { parse_chunk(chunk, options); });
  DUNLIN_TRY(first_error(name, chunks));
  if (data.total_rows == 0) {
    return Status(Code::kInvalidArgument, fmt::format("{}: holds no rows", name));
  }
  data.features = options.features;
  for (const Chunk& chunk : chunks) {
    if (options.features == 0) data.features = std::max(data.features, chunk.features);
    data.dropped_values += chunk.dropped_values;
  }
  if (options.label_threshold) {
    data.label_threshold = *options.label_threshold;
  } else {
    DUNLIN_ASSIGN(data.label_threshold, label_threshold(name, chunks));
  }
  append(chunks, options.threads, data);
  return data;
}

Result<Dataset> read_libsvm(const std::string& path, const LibsvmOptions& options) {
  DUNLIN_ASSIGN(const InputFile file, InputFile::open(path));
  DUNLIN_ASSIGN(Dataset data, parse_libsvm(path, file.bytes(), options));
  if (options.has_digest) data.whole = digest_of({as_bytes(file.bytes())});
  return data;
}

}  // namespace dunlin::svm
