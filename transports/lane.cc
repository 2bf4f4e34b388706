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

Status report_put(const Link& link, const LocalSlice& from, const RemoteSlice& to) {
  if (from.size() != to.size()) {
    return {Code::kInvalidArgument,
            fmt::format("put of {} bytes into a slice of {}", from.size(), to.size())};
  }
  return Status(Code::kInvalidArgument,
                "put through a link that the remote slice does not belong to")
      .with_peer(link.peer());
}

Status report_notification(const Notification& notification, std::size_t peer_cells) {
  if (static_cast<std::size_t>(notification.id) >= peer_cells) {
    return {Code::kOutOfRange, fmt::format("notification cell {} of {}",
                                           static_cast<std::size_t>(notification.id), peer_cells)};
  }
  return {Code::kInvalidArgument, fmt::format("{} bytes of inline data; a cell holds {}",
                                              notification.inline_data.size(), kInlineBytes)};
}

}  // namespace dunlin::transport
