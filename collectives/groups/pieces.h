// The pieces in which a mailbox's messages travel (mailbox.h): one for each notification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "runtime/bytes.h"
#include "runtime/status.h"
#include "transports/notification.h"

namespace dunlin::collective::groups {

// Long enough to name every rank of the largest job.
inline constexpr std::size_t kLongestMessage = (std::size_t{4} << 20) + 64;

struct MailboxMessage {
  std::uint64_t tag = 0;  // chosen by the user
  Bytes body;
};

struct Piece {
  std::uint64_t tag = 0;
  std::uint32_t left = 0;  // bytes of the body, from this piece on
  std::uint8_t size = 0;
  std::byte data[transport::kInlineBytes];
};

// Appends the pieces of a message, one for every kInlineBytes of its body, and at least one.
void cut(const MailboxMessage& message, std::deque<Piece>& pieces);

// Makes messages of the pieces of one peer.
class PieceAssembly {
 public:
  // Takes the piece in the cell, and returns the message that it completes, if it does. kCorrupted
  // for a piece that cut() does not make; nothing may be added then.
  Result<std::optional<MailboxMessage>> add(const transport::NotifyCell& cell);

 private:
  std::uint32_t missing_ = 0;  // bytes of the message that is arriving
  std::optional<MailboxMessage> arriving_;
};

}  // namespace dunlin::collective::groups
