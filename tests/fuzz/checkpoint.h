// The checks that the harnesses of the checkpoints of dunlin-svm and dunlin-cnn share. The input is
// a checkpoint without its checksum. The harness adds the checksum, because a decoder refuses every
// file with a wrong one.
#pragma once

#include <string>
#include <utility>

#include "apps/digest.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {

// `decode(text)` reads a file; encode_checkpoint() of the result's namespace writes it.
template <typename Decode>
void check_checkpoint(std::span<const std::byte> content, Decode&& decode) {
  Bytes file(content.begin(), content.end());
  const Digest digest = digest_of({content});
  file.insert(file.end(), digest.begin(), digest.end());
  const auto as_text = [](const Exact& bytes) { return bytes.text(); };
  const Exact exact(file);
  const auto checkpoint = decode(as_text(exact));
  if (!checkpoint) return;
  FUZZ_CHECK(equal(encode_checkpoint(*checkpoint), file));
  // A file that is cut short is refused, and so is a file with a changed byte.
  FUZZ_CHECK(!decode(as_text(exact).substr(0, file.size() - 1)).is_ok());
  file[file.size() / 2] ^= std::byte{1};
  FUZZ_CHECK(!decode(as_text(Exact(file))).is_ok());
}

template <typename Checkpoint>
Seed checkpoint_seed(std::string name, const Checkpoint& checkpoint) {
  Bytes bytes = encode_checkpoint(checkpoint);
  bytes.resize(bytes.size() - sizeof(Digest));
  return {std::move(name), bytes};
}

}  // namespace dunlin::fuzz
