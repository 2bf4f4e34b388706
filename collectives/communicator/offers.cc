#include "collectives/communicator/offers.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective {

Bytes WindowOffer::encode() const {
  ByteWriter writer;
  writer.number(size).blob(descriptor);
  return writer.take();
}

Result<WindowOffer> WindowOffer::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  WindowOffer offer;
  offer.size = reader.number<std::uint64_t>();
  offer.descriptor = reader.bytes();
  if (!reader.at_end()) return Status(Code::kCorrupted, "malformed offer of a member's memory");
  return offer;
}

Bytes MemberOffer::encode() const {
  return ByteWriter()
      .number(static_cast<std::uint32_t>(first_cell))
      .number(options)
      .number(host)
      .take();
}

Result<std::vector<MemberOffer>> MemberOffer::decode_all(std::span<const std::byte> bytes,
                                                         std::size_t members) {
  ByteReader reader(bytes);
  std::vector<MemberOffer> offers;
  while (reader.ok() && !reader.at_end() && offers.size() < members) {
    MemberOffer& offer = offers.emplace_back();
    offer.first_cell = transport::NotifyId(reader.number<std::uint32_t>());
    offer.options = reader.number<std::uint32_t>();
    offer.host = reader.number<std::uint64_t>();
  }
  if (!reader.at_end() || offers.size() != members)
    return Status(Code::kCorrupted, fmt::format("{} bytes of {} members", bytes.size(), members));
  return offers;
}

Result<bool> decode_mapped(std::span<const std::byte> answers, std::size_t members) {
  if (answers.size() != members)
    return Status(Code::kCorrupted,
                  fmt::format("{} answers of {} members", answers.size(), members));
  return std::ranges::all_of(answers, [](std::byte each) { return each != std::byte{}; });
}

Bytes MismatchReport::encode() const {
  ByteWriter writer;
  writer.number(part).number(finder).number(other).text(finder_text).text(other_text);
  return writer.take();
}

Result<MismatchReport> MismatchReport::decode(std::span<const std::byte> bytes,
                                              std::size_t members) {
  ByteReader reader(bytes);
  MismatchReport report;
  report.part = reader.number<std::uint64_t>();
  report.finder = reader.number<std::int32_t>();
  report.other = reader.number<std::int32_t>();
  report.finder_text = reader.text();
  report.other_text = reader.text();
  const auto is_member = [&](std::int32_t member) {
    return member >= 0 && static_cast<std::size_t>(member) < members;
  };
  if (!reader.at_end() || !is_member(report.finder) || !is_member(report.other))
    return Status(Code::kCorrupted, "malformed news of a mismatch");
  return report;
}

}  // namespace dunlin::collective
