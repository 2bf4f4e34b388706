// Claim: what each member of a process group tells the others of its process, through the store
// that PyTorch hands to all of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/status.h"

namespace dunlin::torch_backend {

// Whether a member's process is in a job (kRunning), or was started for one (kLaunched).
enum class Standing : std::uint8_t { kNone, kLaunched, kRunning };

struct Claim {
  Standing standing = Standing::kNone;
  std::string job;  // the same for the members of one job
  int rank = 0;     // in that job
  std::string host;
  std::string token;  // random

  std::string encode() const;
  // kCorrupted if encode() has not made the text.
  static Result<Claim> decode(std::string_view text);
};

}  // namespace dunlin::torch_backend
