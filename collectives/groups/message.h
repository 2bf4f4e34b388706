// GroupMessage: what workers and the master of groups send to one another (groups/service.h), and
// its encoding as a mailbox message, whose tag is a group's number. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/groups/generator.h"
#include "collectives/groups/mailbox.h"

namespace dunlin::collective::groups {

enum class MessageKind : std::uint8_t {
  // A worker sends these; groups/generator.h explains the first three:
  kAsk = 1,
  kDone,
  kFail,
  kResume,  // to a new master: the group that the worker is in, or was in last. Before it, the
            // worker sends kDone for each of its last groups.
  kLeave,   // the worker has ended its training
  // The master sends these:
  kJoin,
  kBroken,
  kOver,     // all workers have ended their training, and no rank needs the worker any more
  kRefused,  // the worker has sent something impossible
};

// How many of its last groups a worker reports to a new master. If another member is still in an
// older one, that member loses an average.
inline constexpr std::size_t kMostDone = 16;

struct GroupMessage {
  MessageKind kind{};
  // A group's number. kAsk, kLeave: the last group that is over; kResume: the last one that the
  // worker has joined. 0: none.
  std::uint64_t number = 0;
  std::uint64_t iteration = 0;  // kAsk
  // kResume: the worker is still in that group; kJoin: then_compute; kBroken: ask_again.
  bool flag = false;
  std::vector<Rank>
      ranks{};            // the group's members; kJoin, and kResume if the worker is in the group
  Code code = Code::kOk;  // kRefused
  std::string text{};     // kRefused

  bool operator==(const GroupMessage&) const = default;
};

MailboxMessage encode(const GroupMessage& message);
// kCorrupted: no rank of a job of `size` ranks can have sent this message.
Result<GroupMessage> decode(const MailboxMessage& encoded, int size);

GroupMessage to_message(const GroupNotice& notice);
// `message` is of kind kJoin or kBroken.
GroupNotice to_notice(const GroupMessage& message, Rank to);

}  // namespace dunlin::collective::groups
