#include "transports/lane.h"

#include <fmt/format.h>

#include "runtime/log.h"
#include "transports/transport.h"

namespace dunlin::transport {

void Completion::fire(Status status) {
  if (is_done_) {
    DUNLIN_ERROR("a transport completed an operation twice: {}", status.to_string());
    std::abort();
  }
  status_ = std::move(status);
  is_done_ = true;
}

Status report_transfer(const Link& link, const LocalSlice& local, const RemoteSlice& remote) {
  if (local.size() != remote.size()) {
    return {Code::kInvalidArgument,
            fmt::format("the local slice has {} bytes and the remote slice {}", local.size(),
                        remote.size())};
  }
  return Status(Code::kInvalidArgument, "the remote slice was imported through another link")
      .with_peer(link.peer());
}

Status check_local(const Link& link, const LocalSlice& local, std::size_t index,
                   std::string_view transport) {
  if (is_local_valid(local, index)) return Status::ok();
  return Status(Code::kUnavailable,
                fmt::format("the local slice is {} memory, which {} cannot access",
                            to_string(local.region()->memory()->kind()), transport))
      .with_peer(link.peer());
}

Status check_word(const Link& link, const RemoteSlice& word) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (word.size() != kWord || word.offset() % kWord != 0) {
    return {Code::kInvalidArgument,
            fmt::format("an atomic on {} bytes at offset {}: a word is 8 bytes at a multiple of 8",
                        word.size(), word.offset())};
  }
  if (&word.region()->link() == &link) return Status::ok();
  return Status(Code::kInvalidArgument, "the word of an atomic was imported through another link")
      .with_peer(link.peer());
}

Status report_notification(const Notification& notification, std::size_t peer_cells) {
  if (static_cast<std::size_t>(notification.id) >= peer_cells) {
    return {Code::kOutOfRange, fmt::format("there is no notification cell {}: the peer has {}",
                                           static_cast<std::size_t>(notification.id), peer_cells)};
  }
  return {Code::kInvalidArgument,
          fmt::format("{} bytes of inline data do not fit into a cell, which holds {}",
                      notification.inline_data.size(), kInlineBytes)};
}

}  // namespace dunlin::transport
