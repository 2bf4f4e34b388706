// What a rank publishes for those that may write to its mailboxes (mailbox.h).
#pragma once

#include <cstddef>
#include <span>

#include "runtime/bytes.h"
#include "runtime/status.h"
#include "transports/notification.h"

namespace dunlin::collective::groups {

struct MailboxOffer {
  transport::NotifyId first_cell{};
  Bytes terms;  // of the mailboxes' user; they have to be the same on all ranks

  Bytes encode() const;
  static Result<MailboxOffer> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::collective::groups
