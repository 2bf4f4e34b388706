#include "apps/cnn/program/standing.h"

#include <bit>

namespace dunlin::cnn {

Bytes Standing::encode() const {
  return ByteWriter()
      .number(static_cast<std::uint8_t>(has_model))
      .number(static_cast<std::uint8_t>(is_over))
      .number(iteration)
      .number(std::int64_t{timeout.count()})
      .number(std::int64_t{trained.count()})
      .number(std::bit_cast<std::uint64_t>(loss))
      .number(std::bit_cast<std::uint64_t>(accuracy))
      .number(batches)
      .take();
}

Result<Standing> Standing::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Standing standing;
  standing.has_model = reader.number<std::uint8_t>() != 0;
  standing.is_over = reader.number<std::uint8_t>() != 0;
  standing.iteration = reader.number<std::uint64_t>();
  standing.timeout = Duration(reader.number<std::int64_t>());
  standing.trained = Duration(reader.number<std::int64_t>());
  standing.loss = std::bit_cast<double>(reader.number<std::uint64_t>());
  standing.accuracy = std::bit_cast<double>(reader.number<std::uint64_t>());
  standing.batches = reader.number<std::uint64_t>();
  const bool is_sound =
      standing.timeout >= Duration::zero() && standing.trained >= Duration::zero();
  if (!reader.at_end() || !is_sound)
    return Status(Code::kCorrupted, "the standing of a worker is malformed");
  return standing;
}

}  // namespace dunlin::cnn
