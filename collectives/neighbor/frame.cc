#include "collectives/neighbor/frame.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective::neighbor {
namespace {

constexpr std::byte kFill[8] = {};

std::uint64_t behind(const Header& header) {
  return header.kind == Kind::kEager ? header.bytes : 0;
}

}  // namespace

void Frame::clear() {
  parts_.clear();
  bytes_ = 0;
}

void Frame::add(const Part& part) {
  parts_.push_back(part);
  bytes_ += part_bytes(part.bytes.size());
}

std::span<const std::span<const std::byte>> Frame::pieces() {
  pieces_.clear();
  for (const Part& part : parts_) {
    if (const std::size_t before = pieces_.empty() ? 0 : pieces_.back().size() % sizeof kFill;
        before != 0) {
      pieces_.emplace_back(kFill, sizeof kFill - before);
    }
    pieces_.push_back(bytes_of(part.header));
    if (!part.bytes.empty()) pieces_.push_back(part.bytes);
  }
  return pieces_;
}

Status check_frame(std::span<const std::byte> message) {
  const auto damaged = [&](std::span<const std::byte> rest, const std::string& what) {
    return Status(Code::kCorrupted,
                  fmt::format("a damaged message of {} bytes: {} at byte {}", message.size(), what,
                              message.size() - rest.size()));
  };
  if (message.empty()) return damaged(message, "nothing");
  for (std::span<const std::byte> rest = message; !rest.empty();) {
    if (rest.size() < sizeof(Header)) {
      return damaged(rest, fmt::format("{} bytes, which are no header,", rest.size()));
    }
    const Header header = header_of(rest);
    if (header.kind > Kind::kFailed) {
      return damaged(rest, fmt::format("an unknown kind {}", static_cast<int>(header.kind)));
    }
    const std::size_t left = rest.size() - sizeof(Header);
    if (behind(header) > left) {
      return damaged(rest, fmt::format("a part of {} bytes where {} are left", header.bytes, left));
    }
    take_part(rest);
  }
  return Status::ok();
}

Part take_part(std::span<const std::byte>& rest) {
  Part part{header_of(rest)};
  const auto size = static_cast<std::size_t>(behind(part.header));
  part.bytes = rest.subspan(sizeof(Header), size);
  rest = rest.subspan(std::min(rest.size(), part_bytes(size)));
  return part;
}

}  // namespace dunlin::collective::neighbor
