// What a rank publishes for those that may meet it in a partial all-reduce: the cells that they
// write, and the options that have to be the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/bytes.h"
#include "runtime/status.h"
#include "transports/notification.h"

namespace dunlin::collective::partial {

// Options that members of a partial all-reduce have to agree on.
struct Terms {
  std::uint64_t scratch_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::string algorithm;
  bool is_on_gpu = false;
  bool operator==(const Terms&) const = default;
};

struct ContactOffer {
  transport::NotifyId first_cell{};
  Terms terms;

  Bytes encode() const;
  static Result<ContactOffer> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::collective::partial
