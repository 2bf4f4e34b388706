// What the members of a communicator publish for one another through the bootstrap.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/status.h"
#include "transports/notification.h"

namespace dunlin::collective {

// A member's memory of a window.
struct WindowOffer {
  std::uint64_t size = 0;  // as requested
  Bytes descriptor;        // of the region, which begins at or before the memory

  Bytes encode() const;
  static Result<WindowOffer> decode(std::span<const std::byte> bytes);
};

// What members know of one another before they connect. All of them have the same size, so that
// they are gathered.
struct MemberOffer {
  transport::NotifyId first_cell{};
  std::uint32_t options = 0;  // a hash of those that have to be the same
  std::uint64_t host = 0;     // a hash of its name

  Bytes encode() const;
  // The offers of all members, which lie one behind the other.
  static Result<std::vector<MemberOffer>> decode_all(std::span<const std::byte> bytes,
                                                     std::size_t members);
};

// The answers of all members: whether each of them has mapped the memory of all others. Returns
// whether all have.
Result<bool> decode_mapped(std::span<const std::byte> answers, std::size_t members);

// Two members make different calls (mismatch.h).
struct MismatchReport {
  std::uint64_t part = 0;
  std::int32_t finder = 0;  // a member
  std::int32_t other = 0;   // a member
  std::string finder_text;
  std::string other_text;  // as far as the finder knows

  Bytes encode() const;
  static Result<MismatchReport> decode(std::span<const std::byte> bytes, std::size_t members);
};

}  // namespace dunlin::collective
