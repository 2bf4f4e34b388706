// The wire format of partial all-reduces (partial_all_reduce.h): what two ranks write into each
// other's notification cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "collectives/schedule/program.h"
#include "runtime/status.h"
#include "transports/notification.h"

namespace dunlin::collective::partial {

// An operation in slices uses two sets of cells, scratch and staging memory in turn. A rank that
// has ended a slice knows that all members have entered it, and so have ended the one before.
inline constexpr std::size_t kTurns = 2;

// Operations are numbered from 1. The sequence number of a message has the operation's number in
// its upper bits and the message's in the lower kMessageBits.
inline constexpr int kMessageBits = 24;
inline constexpr std::uint64_t kMostMessages = std::uint64_t{1} << kMessageBits;
inline constexpr std::uint64_t kLastNumber = std::uint64_t{1} << (63 - kMessageBits);

// A rank's cells for one of its peers. The sequence number of the first three is an operation's
// number.
enum class CellOf : std::uint32_t {
  kHello,     // the peer has entered the operation; holds a Hello
  kAbort,     // the peer has aborted the operation; holds an AbortNotice
  kAbortAck,  // the peer has ended the operation of the last notice, or will not begin it
  kWays,      // from here on: the messages of programs, by turn and stream
};
inline constexpr std::uint32_t kCellsPerPeer =
    static_cast<std::uint32_t>(CellOf::kWays) + kTurns * kStreams;

constexpr transport::NotifyId way_cell(transport::NotifyId first, std::size_t turn, Stream stream) {
  return transport::cell_at(first, static_cast<std::uint32_t>(CellOf::kWays) +
                                       static_cast<std::uint32_t>(turn * kStreams) +
                                       static_cast<std::uint32_t>(stream));
}

// What a member says about its call. The tag of the notification is a hash of the group's members
// and the label, and its length the group's size. Offsets are from the beginning of the window's
// region.
struct Hello {
  std::uint64_t count = 0;
  std::uint64_t input_offset = 0;
  std::uint64_t output_offset = 0;
  std::uint32_t input_window = 0;
  std::uint32_t output_window = 0;
  std::uint32_t scratch_window = 0;
  std::uint8_t type = 0;       // DataType
  std::uint8_t op = 0;         // ReduceOp
  std::uint8_t is_staged = 0;  // its memory is in no window: input and output above mean nothing
  std::uint8_t maps_all = 0;   // it has mapped the memory of all other members
};
static_assert(sizeof(Hello) == transport::kInlineBytes && std::is_trivially_copyable_v<Hello>);

struct AbortNotice {
  std::int32_t culprit = -1;  // the rank that caused it; -1: none
  std::uint32_t code = 0;     // the Code of the error
};
static_assert(sizeof(AbortNotice) <= transport::kInlineBytes &&
              std::is_trivially_copyable_v<AbortNotice>);

// The code that a notice gives; kCorrupted if that is no error's.
inline Code code_of(const AbortNotice& notice) {
  const bool is_error = notice.code > static_cast<std::uint32_t>(Code::kBusy) &&
                        notice.code <= static_cast<std::uint32_t>(Code::kInternal);
  return is_error ? static_cast<Code>(notice.code) : Code::kCorrupted;
}

template <typename Content>
Content content_of(const transport::NotifyCell& cell) {
  Content content;
  std::memcpy(&content, cell.inline_data, sizeof content);
  return content;
}

}  // namespace dunlin::collective::partial
