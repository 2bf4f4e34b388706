// What two ranks say to one another in partial all-reduces (partial_all_reduce.h), each in a
// notification cell that the other owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "collectives/schedule/program.h"
#include "transports/notification.h"

namespace dunlin::collective::partial {

// An operation in slices has two sets of cells, scratch and staging memory, in turns: who has ended
// a slice knows that everybody has entered it, and so has ended the one before.
inline constexpr std::size_t kTurns = 2;

// Operations are numbered from 1; their number is above those of the messages in them.
inline constexpr int kMessageBits = 24;
inline constexpr std::uint64_t kMostMessages = std::uint64_t{1} << kMessageBits;
inline constexpr std::uint64_t kLastNumber = std::uint64_t{1} << (63 - kMessageBits);

// A rank's cells for one of its peers. The first three carry an operation's number as sequence.
enum class CellOf : std::uint32_t {
  kHello,     // the peer has entered the operation; a Hello
  kFarewell,  // the peer has given the operation up; a Farewell
  kReceipt,   // the peer has read our farewell
  kWays,      // from here on: the messages of programs, by turn and stream
};
inline constexpr std::uint32_t kCellsPerPeer =
    static_cast<std::uint32_t>(CellOf::kWays) + kTurns * kStreams;

constexpr transport::NotifyId way_cell(transport::NotifyId first, std::size_t turn, Stream stream) {
  return transport::cell_at(first, static_cast<std::uint32_t>(CellOf::kWays) +
                                       static_cast<std::uint32_t>(turn * kStreams) +
                                       static_cast<std::uint32_t>(stream));
}

// What a member says of its call; its notification's tag is a hash of the group's members, its
// length the group's size. Offsets are from the beginning of the window's region.
struct Hello {
  std::uint64_t count = 0;
  std::uint64_t input_offset = 0;
  std::uint64_t output_offset = 0;
  std::uint32_t input_window = 0;
  std::uint32_t output_window = 0;
  std::uint32_t scratch_window = 0;
  std::uint8_t type = 0;       // DataType
  std::uint8_t op = 0;         // ReduceOp
  std::uint8_t is_staged = 0;  // its memory is in no window: the fields above mean nothing
  std::uint8_t maps_all = 0;   // it has the memory of all other members mapped
};
static_assert(sizeof(Hello) == transport::kInlineBytes && std::is_trivially_copyable_v<Hello>);

struct Farewell {
  std::int32_t culprit = -1;  // the rank on whose account; -1: nobody's
  std::uint32_t code = 0;     // Code: why
};
static_assert(sizeof(Farewell) <= transport::kInlineBytes &&
              std::is_trivially_copyable_v<Farewell>);

template <typename Content>
Content content_of(const transport::NotifyCell& cell) {
  Content content;
  std::memcpy(&content, cell.inline_data, sizeof content);
  return content;
}

}  // namespace dunlin::collective::partial
