#include "collectives/groups/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "collectives/partial/wire.h"

namespace dunlin::collective::groups {
namespace {

// Longest text of a refusal. Longer ones are cut off.
constexpr std::size_t kLongestText = 400;

Status corrupted(const char* what) {
  return {Code::kCorrupted, fmt::format("a message about groups: {}", what)};
}

bool has_ranks(const GroupMessage& message) {
  return message.kind == MessageKind::kJoin ||
         (message.kind == MessageKind::kResume && message.flag);
}

Status check(const GroupMessage& message, int size) {
  const bool is_about_a_group = message.kind == MessageKind::kDone ||
                                message.kind == MessageKind::kFail ||
                                message.kind == MessageKind::kJoin ||
                                message.kind == MessageKind::kBroken || has_ranks(message);
  if (is_about_a_group && message.number == 0) return corrupted("it names no group");
  if (message.number >= partial::kLastNumber) return corrupted("a group's number beyond all");
  if (!has_ranks(message)) return Status::ok();
  const auto& ranks = message.ranks;
  const bool is_ascending =
      std::ranges::adjacent_find(ranks, std::greater_equal<>()) == ranks.end();
  if (ranks.empty() || !is_ascending || ranks.front() < Rank(0) || ranks.back() >= Rank(size))
    return corrupted("a group's members");
  return Status::ok();
}

}  // namespace

MailboxMessage encode(const GroupMessage& message) {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(message.kind))
      .number(static_cast<std::uint8_t>(message.flag));
  if (message.kind == MessageKind::kAsk) writer.number(message.iteration);
  if (message.kind == MessageKind::kRefused) {
    writer.number(static_cast<std::uint8_t>(message.code))
        .text(std::string_view(message.text).substr(0, kLongestText));
  }
  if (has_ranks(message)) {
    writer.number(static_cast<std::uint32_t>(message.ranks.size()));
    for (const Rank rank : message.ranks) writer.number(std::int32_t{rank.value()});
  }
  return {message.number, writer.take()};
}

Result<GroupMessage> decode(const MailboxMessage& encoded, int size) {
  ByteReader reader(encoded.body);
  GroupMessage message;
  message.number = encoded.tag;
  const auto kind = reader.number<std::uint8_t>();
  const auto flag = reader.number<std::uint8_t>();
  if (kind < static_cast<std::uint8_t>(MessageKind::kAsk) ||
      kind > static_cast<std::uint8_t>(MessageKind::kRefused) || flag > 1)
    return corrupted("no such kind");
  message.kind = static_cast<MessageKind>(kind);
  message.flag = flag != 0;
  if (message.kind == MessageKind::kAsk) message.iteration = reader.number<std::uint64_t>();
  if (message.kind == MessageKind::kRefused) {
    const auto code = reader.number<std::uint8_t>();
    if (code <= static_cast<std::uint8_t>(Code::kBusy) ||
        code > static_cast<std::uint8_t>(Code::kInternal))
      return corrupted("no such reason");
    message.code = static_cast<Code>(code);
    message.text = reader.text();
  }
  if (has_ranks(message)) {
    const auto count = reader.number<std::uint32_t>();
    if (count > static_cast<std::uint32_t>(size)) return corrupted("more members than ranks");
    for (std::uint32_t i = 0; i < count && reader.ok(); ++i)
      message.ranks.emplace_back(reader.number<std::int32_t>());
  }
  if (!reader.at_end()) return corrupted("its length is wrong");
  DUNLIN_TRY(check(message, size));
  return message;
}

GroupMessage to_message(const GroupNotice& notice) {
  GroupMessage message;
  const bool is_join = notice.kind == GroupNotice::Kind::kJoin;
  message.kind = is_join ? MessageKind::kJoin : MessageKind::kBroken;
  message.number = notice.group.sequence;
  message.flag = is_join ? notice.then_compute : notice.ask_again;
  if (is_join) message.ranks = notice.group.ranks;
  return message;
}

GroupNotice to_notice(const GroupMessage& message, Rank to) {
  GroupNotice notice;
  const bool is_join = message.kind == MessageKind::kJoin;
  notice.kind = is_join ? GroupNotice::Kind::kJoin : GroupNotice::Kind::kBroken;
  notice.to = to;
  notice.group = {message.number, message.ranks};
  notice.then_compute = is_join && message.flag;
  notice.ask_again = !is_join && message.flag;
  return notice;
}

}  // namespace dunlin::collective::groups
