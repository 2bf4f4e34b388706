#include "apps/svm/program/standing.h"

#include <fmt/format.h>

#include <bit>

namespace dunlin::svm {
namespace {

Bytes encode(const Standing& standing) {
  return ByteWriter()
      .number(static_cast<std::uint8_t>(standing.stage))
      .number(standing.exchange)
      .number(standing.stop)
      .number(standing.run)
      .number(standing.schedule)
      .number(standing.examples)
      .number(std::bit_cast<std::uint64_t>(standing.eta0))
      .number(std::int64_t{standing.absence.count()})
      .number(std::int64_t{standing.trained.count()})
      .take();
}

Result<Standing> decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Standing standing;
  standing.stage = static_cast<Stage>(reader.number<std::uint8_t>());
  standing.exchange = reader.number<std::uint64_t>();
  standing.stop = reader.number<std::uint64_t>();
  standing.run = reader.number<std::uint64_t>();
  standing.schedule = reader.number<std::uint64_t>();
  standing.examples = reader.number<std::uint64_t>();
  standing.eta0 = std::bit_cast<double>(reader.number<std::uint64_t>());
  standing.absence = Duration(reader.number<std::int64_t>());
  standing.trained = Duration(reader.number<std::int64_t>());
  if (!reader.at_end() || standing.stage > Stage::kTraining)
    return Status(Code::kCorrupted, "the standing of a worker is malformed");
  return standing;
}

}  // namespace

Result<std::vector<Standing>> share_standings(transport::Fabric& fabric,
                                              const Membership& membership, const Standing& own,
                                              Duration timeout) {
  const Bytes record = encode(own);
  DUNLIN_ASSIGN(const Bytes records,
                fabric.bootstrap().gather(fmt::format("svm/standing/{}", membership.epoch),
                                          membership.members, record, timeout));
  std::vector<Standing> all;
  for (std::size_t i = 0; i < membership.members.size(); ++i) {
    auto standing = decode(std::span(records).subspan(i * record.size(), record.size()));
    if (!standing) return std::move(standing).status().with_peer(membership.members[i]);
    all.push_back(*standing);
  }
  return all;
}

}  // namespace dunlin::svm
