// What workers and the rank that serves groups say to one another (group_service.h), and its form
// on the wire: a letter (mailbox.h) whose tag is a group's number. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/partial/group_generator.h"
#include "collectives/partial/mailbox.h"

namespace dunlin::collective::partial {

enum class Word : std::uint8_t {
  // Of a worker; group_generator.h says what the first three mean:
  kAsk = 1,
  kDone,
  kFail,
  kResume,  // to a new master, first of all: what the worker was at
  kLeave,   // it has ended its training
  // Of the master:
  kJoin,
  kBroken,
  kOver,     // all have ended their training: nobody needs the worker any more
  kRefused,  // what the worker has said can't be
};

struct GroupMessage {
  Word word{};
  // The group's. kAsk, kLeave: the last one that is over; kResume: the last one joined. 0: none.
  std::uint64_t number = 0;
  std::uint64_t iteration = 0;  // kAsk
  // kResume: still in that group; kJoin: then_compute; kBroken: ask_again.
  bool flag = false;
  std::vector<Rank> ranks;  // the group's: of kJoin, and kResume if the worker is in it
  Code code = Code::kOk;    // kRefused
  std::string text;         // kRefused

  bool operator==(const GroupMessage&) const = default;
};

Letter encode(const GroupMessage& message);
// kCorrupted: no such message can come from anybody in a job of `size` ranks.
Result<GroupMessage> decode(const Letter& letter, int size);

GroupMessage to_message(const GroupNotice& notice);
// Of kJoin and kBroken.
GroupNotice to_notice(const GroupMessage& message, Rank to);

}  // namespace dunlin::collective::partial
