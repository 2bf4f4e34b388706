#include "apps/cnn/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string_view>

#include "apps/digest.h"
#include "apps/svm/input_file.h"
#include "runtime/bytes.h"
#include "runtime/files/output_file.h"

namespace dunlin::cnn {
namespace {

constexpr std::string_view kMagic("DUNLCNN\n", 8);
// Version 2: the parameters lie in the order of their layers; in version 1 the last layer came
// first. Version 3: parameter servers don't count as ranks that save.
constexpr std::uint32_t kVersion = 3;

Status corrupted(const std::string& path, std::string_view problem) {
  return {Code::kCorrupted, fmt::format("{}: {}", path, problem)};
}

Bytes encode(const Checkpoint& checkpoint) {
  ByteWriter writer;
  for (const char c : kMagic) writer.number(c);
  writer.number(kVersion).number(checkpoint.rank).number(checkpoint.ranks);
  writer.number(checkpoint.run).number(checkpoint.iteration).text(checkpoint.settings);
  writer.number(std::bit_cast<std::uint64_t>(checkpoint.loss));
  writer.number(std::bit_cast<std::uint64_t>(checkpoint.accuracy));
  writer.number(checkpoint.batches);
  for (const auto* values :
       {&checkpoint.parameters, &checkpoint.velocity, &checkpoint.statistics}) {
    writer.blob(std::as_bytes(std::span(*values)));
  }
  return writer.take();
}

// False: the bytes end within a number.
bool read_floats(std::span<const std::byte> bytes, std::vector<float>& values) {
  values.resize(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return bytes.size() % sizeof(float) == 0;
}

}  // namespace

Bytes encode_checkpoint(const Checkpoint& checkpoint) {
  Bytes bytes = encode(checkpoint);
  const Digest digest = dunlin::digest_of({bytes});
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  return bytes;
}

Result<Checkpoint> decode_checkpoint(const std::string& path, std::string_view text) {
  if (!text.starts_with(kMagic)) {
    return corrupted(path, kMagic.starts_with(text) ? "the checkpoint is cut short"
                                                    : "is no checkpoint of dunlin-cnn");
  }
  const auto bytes = as_bytes(text);
  ByteReader reader(bytes.subspan(kMagic.size()));
  const auto version = reader.number<std::uint32_t>();
  if (reader.ok() && version != kVersion) {
    return Status(Code::kUnavailable,
                  fmt::format("{}: the checkpoint has format version {}; this program knows {}",
                              path, version, kVersion));
  }
  if (bytes.size() < kMagic.size() + sizeof version + sizeof(Digest)) {
    return corrupted(path, "the checkpoint is cut short");
  }
  const auto content = bytes.first(bytes.size() - sizeof(Digest));
  if (!std::ranges::equal(bytes.last(sizeof(Digest)), dunlin::digest_of({content}))) {
    return corrupted(path, "the checkpoint is cut short or changed: its checksum does not match");
  }
  reader = ByteReader(content.subspan(kMagic.size() + sizeof version));
  Checkpoint checkpoint;
  checkpoint.rank = reader.number<std::uint32_t>();
  checkpoint.ranks = reader.number<std::uint32_t>();
  checkpoint.run = reader.number<std::uint64_t>();
  checkpoint.iteration = reader.number<std::uint64_t>();
  checkpoint.settings = reader.text();
  checkpoint.loss = std::bit_cast<double>(reader.number<std::uint64_t>());
  checkpoint.accuracy = std::bit_cast<double>(reader.number<std::uint64_t>());
  checkpoint.batches = reader.number<std::uint64_t>();
  bool is_whole = true;
  for (auto* values : {&checkpoint.parameters, &checkpoint.velocity, &checkpoint.statistics})
    is_whole &= read_floats(reader.blob(), *values);
  if (!reader.at_end() || !is_whole)
    return corrupted(path, "the checkpoint's content doesn't fill it");
  return checkpoint;
}

Status save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  return replace_file(path, encode_checkpoint(checkpoint), {.is_durable = true});
}

Result<Checkpoint> load_checkpoint(const std::string& path) {
  DUNLIN_ASSIGN(const svm::InputFile file, svm::InputFile::open(path));
  return decode_checkpoint(path, file.bytes());
}

Status check_resumable(const Checkpoint& saved, const Checkpoint& current) {
  const auto compare = [](const char* what, const auto& before, const auto& now) -> Status {
    if (before == now) return Status::ok();
    return {Code::kInvalidArgument,
            fmt::format("the checkpoint was made with {} {}, this run has {}", what, before, now)};
  };
  DUNLIN_TRY(compare("settings", saved.settings, current.settings));
  DUNLIN_TRY(compare("parameters", saved.parameters.size(), current.parameters.size()));
  DUNLIN_TRY(compare("elements of velocity", saved.velocity.size(), current.velocity.size()));
  return compare("running statistics", saved.statistics.size(), current.statistics.size());
}

}  // namespace dunlin::cnn
