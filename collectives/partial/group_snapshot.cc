// The flat form of a group generator's state.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/partial/group_generator.h"

namespace dunlin::collective {
namespace {

// "dgg" and a version: another layout gets another.
constexpr std::uint32_t kMagic = 0x01676764;

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
  options.seed = reader.number<std::uint64_t>();
  if (const Status status = check(options); !status)
    return corrupted(std::string(status.message()).c_str());

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
  for (const auto& [sequence, record] : groups_) {
    if (record.left == 0) return corrupted("a group that nobody has");
  }
  return reader.ok() ? Status::ok() : corrupted("it is cut off");
}

}  // namespace dunlin::collective
