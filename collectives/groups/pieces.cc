#include "collectives/groups/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace dunlin::collective::groups {

using transport::kInlineBytes;

void cut(const MailboxMessage& message, std::deque<Piece>& pieces) {
  std::span<const std::byte> rest = message.body;
  do {
    Piece piece;
    piece.tag = message.tag;
    piece.left = static_cast<std::uint32_t>(rest.size());
    piece.size = static_cast<std::uint8_t>(std::min(rest.size(), kInlineBytes));
    std::copy_n(rest.begin(), piece.size, piece.data);
    pieces.push_back(piece);
    rest = rest.subspan(piece.size);
  } while (!rest.empty());
}

Result<std::optional<MailboxMessage>> PieceAssembly::add(const transport::NotifyCell& cell) {
  const bool is_first = !arriving_;
  const std::uint32_t expected = is_first ? cell.length : missing_;
  const std::uint32_t size = std::min<std::uint32_t>(cell.length, kInlineBytes);
  if (cell.length != expected || cell.length > kLongestMessage || cell.inline_size != size ||
      (!is_first && cell.tag != arriving_->tag)) {
    return Status(
        Code::kCorrupted,
        fmt::format("a piece of {} bytes with {} left of its message, where {} are missing",
                    cell.inline_size, cell.length, expected));
  }
  if (is_first) arriving_ = MailboxMessage{cell.tag, {}};
  Bytes& body = arriving_->body;
  body.insert(body.end(), cell.inline_data, cell.inline_data + size);
  missing_ = expected - size;
  if (missing_ > 0) return std::optional<MailboxMessage>();
  return std::exchange(arriving_, std::nullopt);
}

}  // namespace dunlin::collective::groups
