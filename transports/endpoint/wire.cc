#include "transports/endpoint/wire.h"

#include <fmt/format.h>

#include <utility>

namespace dunlin::transport::endpoint {
namespace {

// In a tag, beside the kind.
constexpr std::uint64_t kMore = std::uint64_t{1} << 8;

}  // namespace

std::uint64_t PartTag::encode() const {
  return static_cast<std::uint64_t>(kind) | (has_more ? kMore : 0);
}

std::optional<PartTag> PartTag::decode(std::uint64_t tag) {
  const std::uint64_t kind = tag & ~kMore;
  if (kind > static_cast<std::uint64_t>(MessageKind::kImported)) return std::nullopt;
  return PartTag{static_cast<MessageKind>(kind), (tag & kMore) != 0};
}

Result<std::optional<WholeMessage>> Assembly::add(std::uint64_t tag,
                                                  std::span<const std::byte> part) {
  const auto told = PartTag::decode(tag);
  const std::size_t before = arriving_ ? arriving_->bytes.size() : 0;
  if (!told || part.size() > largest_part_ || part.size() > largest_message_ - before ||
      (arriving_ && arriving_->kind != told->kind)) {
    return Status(
        Code::kCorrupted,
        fmt::format("a part of {} bytes with the tag {:#x}, after {} bytes of its message",
                    part.size(), tag, before));
  }
  if (!arriving_) arriving_.emplace().kind = told->kind;
  arriving_->bytes.insert(arriving_->bytes.end(), part.begin(), part.end());
  if (told->has_more) return std::optional<WholeMessage>();
  return std::exchange(arriving_, std::nullopt);
}

Bytes ImportRequest::encode() const {
  return ByteWriter().number(id).take();
}

Result<ImportRequest> ImportRequest::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const ImportRequest request{reader.number<std::uint64_t>()};
  if (!reader.at_end()) return Status(Code::kCorrupted, "a malformed request for memory");
  return request;
}

Bytes ImportAnswer::encode() const {
  return ByteWriter()
      .number(id)
      .number(static_cast<std::uint8_t>(code))
      .text(why)
      .blob(descriptor)
      .take();
}

Result<ImportAnswer> ImportAnswer::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  ImportAnswer answer;
  answer.id = reader.number<std::uint64_t>();
  const auto code = reader.number<std::uint8_t>();
  answer.why = reader.text();
  answer.descriptor = reader.bytes();
  const bool is_code_known =
      code <= static_cast<std::uint8_t>(Code::kInternal) && Code(code) != Code::kBusy;
  if (!reader.at_end() || !is_code_known)
    return Status(Code::kCorrupted, "a malformed answer about memory");
  answer.code = Code(code);
  return answer;
}

}  // namespace dunlin::transport::endpoint
