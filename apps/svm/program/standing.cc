#include "apps/svm/program/standing.h"

#include <bit>

namespace dunlin::svm {

Bytes Standing::encode() const {
  return ByteWriter()
      .number(static_cast<std::uint8_t>(stage))
      .number(exchange)
      .number(stop)
      .number(run)
      .number(schedule)
      .number(examples)
      .number(std::bit_cast<std::uint64_t>(eta0))
      .number(std::int64_t{absence.count()})
      .number(std::int64_t{trained.count()})
      .take();
}

Result<Standing> Standing::decode(std::span<const std::byte> bytes) {
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
  const bool is_sound = standing.stage <= Stage::kTraining &&
                        standing.absence >= Duration::zero() &&
                        standing.trained >= Duration::zero();
  if (!reader.at_end() || !is_sound)
    return Status(Code::kCorrupted, "the standing of a worker is malformed");
  return standing;
}

}  // namespace dunlin::svm
