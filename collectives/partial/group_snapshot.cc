// The flat form of a group generator's state.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/partial/group_generator.h"

namespace dunlin::collective {
namespace {

// "dgg" and a version: another layout gets another.
constexpr std::uint32_t kMagic = 0x02676764;
// Of a worker without groups: three flags, `alone`, three numbers, the length of its queue.
constexpr std::size_t kLeastWorkerSize = 3 * 1 + 4 + 3 * 8 + 4;

Status corrupted(const char* what) {
  return {Code::kCorrupted, fmt::format("group generator's snapshot: {}", what)};
}

}  // namespace

Bytes GroupGenerator::snapshot() const {
  ByteWriter writer;
  writer.number(kMagic)
      .number(static_cast<std::uint8_t>(options_.policy))
      .number(std::int32_t{options_.layout.nodes})
      .number(std::int32_t{options_.layout.workers_per_node})
      .number(std::int32_t{options_.group_size})
      .number(options_.slowdown_threshold)
      .number(static_cast<std::uint8_t>(options_.inter_intra))
      .number(static_cast<std::uint8_t>(options_.intra_filter))
      .number(options_.most_alone)
      .number(options_.seed)
      .number(random_.state())
      .number(next_sequence_);
  writer.number(static_cast<std::uint32_t>(groups_.size()));
  for (const auto& [sequence, record] : groups_) {
    writer.number(sequence).number(static_cast<std::uint8_t>(record.is_told));
    writer.number(static_cast<std::uint32_t>(record.group.ranks.size()));
    for (const Rank rank : record.group.ranks) writer.number(std::int32_t{rank.value()});
  }
  for (const Worker& each : workers_) {
    writer.number(static_cast<std::uint8_t>(each.is_alive))
        .number(static_cast<std::uint8_t>(each.state))
        .number(static_cast<std::uint8_t>(each.is_answered))
        .number(each.alone)
        .number(each.iteration)
        .number(each.told)
        .number(each.own)
        .number(static_cast<std::uint32_t>(each.queue.size()));
    for (const std::uint64_t sequence : each.queue) writer.number(sequence);
  }
  return writer.take();
}

Result<GroupGenerator> GroupGenerator::restore(std::span<const std::byte> snapshot) {
  ByteReader reader(snapshot);
  if (reader.number<std::uint32_t>() != kMagic) return corrupted("another format or version");
  GroupOptions options;
  options.policy = static_cast<GroupPolicy>(reader.number<std::uint8_t>());
  options.layout.nodes = reader.number<std::int32_t>();
  options.layout.workers_per_node = reader.number<std::int32_t>();
  options.group_size = reader.number<std::int32_t>();
  options.slowdown_threshold = reader.number<std::uint64_t>();
  options.inter_intra = reader.number<std::uint8_t>() != 0;
  options.intra_filter = reader.number<std::uint8_t>() != 0;
  options.most_alone = reader.number<std::uint32_t>();
  options.seed = reader.number<std::uint64_t>();
  if (const Status status = check(options); !status)
    return corrupted(std::string(status.message()).c_str());
  // Before there is memory for as many workers as it claims to have.
  if (snapshot.size() / kLeastWorkerSize < static_cast<std::size_t>(options.layout.workers()))
    return corrupted("it is cut off");

  GroupGenerator made(options);
  made.random_ = GroupRandom(reader.number<std::uint64_t>());
  made.next_sequence_ = reader.number<std::uint64_t>();
  DUNLIN_TRY(made.read_groups(reader));
  DUNLIN_TRY(made.read_workers(reader));
  if (!reader.at_end()) return corrupted("its length is wrong");
  return made;
}

Status GroupGenerator::read_groups(ByteReader& reader) {
  const auto groups = reader.number<std::uint32_t>();
  std::uint64_t last = 0;
  for (std::uint32_t i = 0; i < groups && reader.ok(); ++i) {
    Record record;
    record.group.sequence = reader.number<std::uint64_t>();
    record.is_told = reader.number<std::uint8_t>() != 0;
    const auto size = reader.number<std::uint32_t>();
    for (std::uint32_t member = 0; member < size && reader.ok(); ++member) {
      const Rank rank(reader.number<std::int32_t>());
      if (!check_rank(rank) || (member > 0 && rank <= record.group.ranks.back()))
        return corrupted("a group's members");
      record.group.ranks.push_back(rank);
    }
    if (size < 2 || record.group.sequence <= last || record.group.sequence >= next_sequence_)
      return corrupted("the order of groups");
    last = record.group.sequence;
    groups_.emplace_hint(groups_.end(), last, std::move(record));
  }
  return reader.ok() ? Status::ok() : corrupted("it is cut off");
}

Status GroupGenerator::read_workers(ByteReader& reader) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& each = workers_[i];
    each.is_alive = reader.number<std::uint8_t>() != 0;
    const auto state = reader.number<std::uint8_t>();
    each.state = static_cast<State>(state);
    each.is_answered = reader.number<std::uint8_t>() != 0;
    each.alone = reader.number<std::uint32_t>();
    each.iteration = reader.number<std::uint64_t>();
    each.told = reader.number<std::uint64_t>();
    each.own = reader.number<std::uint64_t>();
    const auto size = reader.number<std::uint32_t>();
    for (std::uint32_t at = 0; at < size && reader.ok(); ++at) {
      const auto sequence = reader.number<std::uint64_t>();
      const auto found = groups_.find(sequence);
      if (found == groups_.end() || !found->second.group.has(Rank(static_cast<int>(i))) ||
          (at > 0 && sequence <= each.queue.back()))
        return corrupted("a worker's queue");
      each.queue.push_back(sequence);
      ++found->second.left;
    }
    if (state > static_cast<std::uint8_t>(State::kServed) || each.told >= next_sequence_ ||
        (!each.is_alive && !each.queue.empty()))
      return corrupted("a worker's state");
  }
  if (!reader.ok()) return corrupted("it is cut off");
  for (const auto& [sequence, record] : groups_) {
    if (!holds_together(record)) return corrupted("a group that its members don't agree on");
  }
  for (const Worker& each : workers_) {
    if (!holds_together(each)) return corrupted("a worker that waits for nothing, or for too much");
  }
  return Status::ok();
}

// Somebody has it; whoever was not told of it yet does; and it counts as told if anybody was. With
// the workers' queues ascending, it follows that all have what nobody was told of, and that all in
// a queue up to `told` are groups that somebody was told of.
bool GroupGenerator::holds_together(const Record& record) const {
  const std::uint64_t sequence = record.group.sequence;
  bool is_told = false;
  for (const Rank rank : record.group.ranks) {
    const Worker& member = worker(rank);
    if (member.told >= sequence) {
      is_told = true;
    } else if (!std::binary_search(member.queue.begin(), member.queue.end(), sequence)) {
      return false;
    }
  }
  return record.left > 0 && record.is_told == is_told;
}

// What is so between any two calls, as serve() ends each. Of groups that hold together.
bool GroupGenerator::holds_together(const Worker& each) const {
  const auto& queue = each.queue;
  if (each.is_answered && each.told == 0) return false;
  if (each.state == State::kServed && (queue.empty() || queue.front() != each.told)) return false;
  if (options_.policy != GroupPolicy::kRandom) {
    const bool has_told = !queue.empty() && queue.front() <= each.told;
    return each.own == 0 && each.state != State::kWaiting &&
           has_told == (each.state == State::kServed);
  }
  if (each.own != 0 && !std::binary_search(queue.begin(), queue.end(), each.own)) return false;
  if (!each.is_alive || queue.empty()) return !each.is_alive || each.state != State::kWaiting;
  if (each.state == State::kWaiting && each.own == 0) return false;
  // The locks: who waits is told of its front as soon as that is in front of all.
  const std::uint64_t sequence = queue.front();
  const auto& ranks = groups_.at(sequence).group.ranks;
  const bool is_in_front = std::all_of(ranks.begin(), ranks.end(), [&](Rank member) {
    const auto& other = worker(member).queue;
    return !std::binary_search(other.begin(), other.end(), sequence) || other.front() == sequence;
  });
  if (sequence <= each.told) return is_in_front;
  return each.state != State::kWaiting || !is_in_front;
}

}  // namespace dunlin::collective
