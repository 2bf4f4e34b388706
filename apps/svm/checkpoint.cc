#include "apps/svm/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "apps/svm/input_file.h"
#include "runtime/bytes.h"
#include "runtime/files/output_file.h"

namespace dunlin::svm {
namespace {

constexpr std::string_view kMagic("DUNLSVM\n", 8);
// Version 4: the digests of the shards add up to that of the set.
constexpr std::uint32_t kVersion = 4;

// The unsigned integer that a field is stored as.
template <typename T>
using Raw = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                               std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint8_t>>;

// Writing and reading share the list of fields in visit_fields(), so that they cannot disagree.
struct FieldWriter {
  template <typename T>
  void field(const T& value) {
    out.number(std::bit_cast<Raw<T>>(value));
  }

  ByteWriter out;
};

struct FieldReader {
  template <typename T>
  void field(T& value) {
    const auto raw = in.number<Raw<T>>();
    if constexpr (std::is_floating_point_v<T>) {
      value = std::bit_cast<T>(raw);
    } else {
      value = static_cast<T>(raw);
      // A flag that is neither 0 nor 1.
      if constexpr (std::is_same_v<T, bool>) is_valid &= raw <= 1;
    }
  }

  ByteReader in;
  bool is_valid = true;
};

// Everything but the elements of the model and of the average. `count` is their number.
template <typename Visitor, typename CheckpointType, typename Count>
void visit_fields(Visitor& visitor, CheckpointType& checkpoint, Count& count) {
  visitor.field(count);
  visitor.field(checkpoint.rank);
  visitor.field(checkpoint.ranks);
  visitor.field(checkpoint.run);
  visitor.field(checkpoint.group_epoch);
  visitor.field(checkpoint.iteration);
  visitor.field(checkpoint.shard_rows);
  for (auto& byte : checkpoint.data) visitor.field(byte);
  auto& options = checkpoint.options;
  visitor.field(options.loss);
  visitor.field(options.lambda);
  visitor.field(options.eta0);
  visitor.field(options.has_bias);
  visitor.field(options.seed);
  visitor.field(options.shard);
  visitor.field(options.t_step);
  auto& state = checkpoint.state;
  visitor.field(state.t);
  visitor.field(state.epoch);
  visitor.field(state.position);
  visitor.field(state.scale);
  visitor.field(checkpoint.averaged);
}

FieldWriter written_header(const Checkpoint& checkpoint) {
  FieldWriter writer;
  for (const char c : kMagic) writer.field(c);
  writer.field(kVersion);
  const std::uint64_t count = checkpoint.model.size();
  visit_fields(writer, checkpoint, count);
  return writer;
}

Status corrupted(const std::string& path, std::string_view problem) {
  return {Code::kCorrupted, fmt::format("{}: {}", path, problem)};
}

}  // namespace

// The sum of the digests of all rows, each with its place in the set.
Digest digest_of(const Dataset& rows) {
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  Digest sum{};
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    const Row row = rows.row(i);
    const std::uint64_t head[] = {rows.features, rows.total_rows, rows.numbers[i],
                                  std::bit_cast<std::uint32_t>(row.label)};
    sum = sum_of(sum, dunlin::digest_of({bytes(head), bytes(row.indices), bytes(row.values)}));
  }
  return sum;
}

std::uint64_t examples_of(const Checkpoint& checkpoint) {
  return checkpoint.state.epoch * checkpoint.shard_rows + checkpoint.state.position;
}

Bytes encode_checkpoint(const Checkpoint& checkpoint) {
  FieldWriter writer = written_header(checkpoint);
  for (const float element : checkpoint.model) writer.field(element);
  for (const float element : checkpoint.average) writer.field(element);
  Bytes bytes = writer.out.take();
  const Digest digest = dunlin::digest_of({bytes});
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  return bytes;
}

Result<Checkpoint> decode_checkpoint(const std::string& path, std::string_view text) {
  constexpr std::string_view kCutShort = "the checkpoint is cut short";
  if (!text.starts_with(kMagic)) {
    return corrupted(path, kMagic.starts_with(text) ? kCutShort : "is no checkpoint");
  }
  const auto bytes = as_bytes(text);
  FieldReader reader{ByteReader(bytes.subspan(kMagic.size()))};
  std::uint32_t version = 0;
  reader.field(version);
  if (reader.in.ok() && version != kVersion) {
    return Status(Code::kUnavailable,
                  fmt::format("{}: the checkpoint has format version {}; this program knows {}",
                              path, version, kVersion));
  }
  Checkpoint checkpoint;
  std::uint64_t count = 0;
  visit_fields(reader, checkpoint, count);
  // The header of every checkpoint has the same size.
  const std::size_t fixed_bytes = written_header({}).out.take().size() + sizeof(Digest);
  if (bytes.size() < fixed_bytes) return corrupted(path, kCutShort);
  const std::size_t vectors = checkpoint.averaged > 0 ? 2 : 1;
  const std::size_t element_bytes = bytes.size() - fixed_bytes;
  if (element_bytes / sizeof(float) / vectors < count) return corrupted(path, kCutShort);
  if (element_bytes != vectors * count * sizeof(float)) {
    return corrupted(path, "the checkpoint has bytes behind its end");
  }
  const auto stored = bytes.last(sizeof(Digest));
  if (!std::ranges::equal(stored,
                          dunlin::digest_of({bytes.first(bytes.size() - sizeof(Digest))}))) {
    return corrupted(path, "the checkpoint's checksum does not match its content");
  }
  if (!reader.is_valid || checkpoint.options.loss > Loss::kLog) {
    return corrupted(path, "the checkpoint names options that this program does not know");
  }
  checkpoint.model.resize(count);
  for (float& element : checkpoint.model) reader.field(element);
  if (checkpoint.averaged > 0) checkpoint.average.resize(count);
  for (float& element : checkpoint.average) reader.field(element);
  return checkpoint;
}

Status save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  return replace_file(path, encode_checkpoint(checkpoint), {.is_durable = true});
}

Result<Checkpoint> load_checkpoint(const std::string& path) {
  DUNLIN_ASSIGN(const InputFile file, InputFile::open(path));
  return decode_checkpoint(path, file.bytes());
}

Status check_resumable(const Checkpoint& saved, const Checkpoint& current) {
  const auto compare = [](const char* what, auto before, auto now) -> Status {
    if (before == now) return Status::ok();
    return {Code::kInvalidArgument,
            fmt::format("the checkpoint was made with {} {}, this run has {}", what, before, now)};
  };
  if (saved.ranks == current.ranks) {
    DUNLIN_TRY(compare("rows of the shard", saved.shard_rows, current.shard_rows));
    if (saved.data != current.data) {
      return {
          Code::kInvalidArgument,
          fmt::format("the checkpoint was made with data {}, this run has {}: the rank has other "
                      "rows. Is it the same training set, and the same --shard-skew?",
                      dunlin::to_string(saved.data), dunlin::to_string(current.data))};
    }
    DUNLIN_TRY(compare("shard", saved.options.shard, current.options.shard));
  }
  DUNLIN_TRY(compare("model elements", saved.model.size(), current.model.size()));
  DUNLIN_TRY(compare("loss", std::string_view(to_string(saved.options.loss)),
                     std::string_view(to_string(current.options.loss))));
  if (current.options.eta0 > 0)
    DUNLIN_TRY(compare("eta0", saved.options.eta0, current.options.eta0));
  DUNLIN_TRY(compare("lambda", saved.options.lambda, current.options.lambda));
  DUNLIN_TRY(compare("bias", saved.options.has_bias, current.options.has_bias));
  DUNLIN_TRY(compare("seed", saved.options.seed, current.options.seed));
  DUNLIN_TRY(compare("t_step", saved.options.t_step, current.options.t_step));
  const auto averaging = [](const Checkpoint& one) {
    return std::string_view(one.averaged > 0 ? "on" : "off");
  };
  return compare("averaging", averaging(saved), averaging(current));
}

}  // namespace dunlin::svm
