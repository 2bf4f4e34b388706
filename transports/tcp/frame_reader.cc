#include "transports/tcp/frame_reader.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dunlin::transport::tcp {

void FrameReader::start(CipherKind kind, const Key& key) {
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kReceiveBytes);
  begin_ = end_ = expected_ = in_frame_ = 0;
  body_ = {};
  target_ = nullptr;
  has_arrived_ = is_drained_ = false;
  cipher_.reset();
  if (kind != CipherKind::kNone) cipher_.emplace(kind, Cipher::Use::kOpen, key);
}

Status FrameReader::fill(int socket, std::size_t& budget) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ > kReceiveBytes / 2) {  // what is left is less than a frame
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  iovec parts[2];
  int count = 0;
  std::size_t wanted = 0;
  if (in_frame_ != 0 && target_ != nullptr && begin_ == end_) {
    parts[count++] = {target_, in_frame_};
    wanted += in_frame_;
  }
  const std::size_t room = std::min(kReceiveBytes - end_, cipher_ ? kReceiveBytes : kPlainAhead);
  parts[count++] = {buffer_.get() + end_, room};
  wanted += room;
  ssize_t got = 0;
  do {
    got = ::readv(socket, parts, count);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return {Code::kClosed, "the peer closed the connection"};
  if (got < 0) {
    is_drained_ = true;
    return errno == EAGAIN ? Status::busy() : Status::from_errno("receive", errno);
  }
  std::size_t size = static_cast<std::size_t>(got);
  is_drained_ = size < wanted;
  budget -= std::min(budget, size);
  if (count == 2) {
    const std::size_t direct = std::min(size, in_frame_);
    in_frame_ -= direct;
    advance_payload(direct);
    size -= direct;
    has_arrived_ = expected_ == 0;
  }
  end_ += size;
  return Status::ok();
}

void FrameReader::expect(std::byte* to, std::size_t size) {
  target_ = to;
  expected_ = size;
}

void FrameReader::advance_payload(std::size_t size) {
  if (target_ != nullptr) target_ += size;
  expected_ -= size;
}

void FrameReader::take_plain_payload() {
  const std::size_t size = std::min(end_ - begin_, in_frame_);
  if (target_ != nullptr && size != 0) std::memcpy(target_, buffer_.get() + begin_, size);
  begin_ += size;
  in_frame_ -= size;
  advance_payload(size);
}

Result<FrameReader::Item> FrameReader::next() {
  if (std::exchange(has_arrived_, false)) return Item::kPayload;
  for (;;) {
    if (in_frame_ != 0) {
      take_plain_payload();
      if (in_frame_ != 0) return Item::kNothing;
      if (expected_ == 0) return Item::kPayload;
    }
    DUNLIN_ASSIGN(const Item item, next_frame());
    if (item != Item::kPayload || expected_ == 0) return item;
  }
}

Result<FrameReader::Item> FrameReader::next_frame() {
  std::byte* const at = buffer_.get() + begin_;
  const std::size_t available = end_ - begin_;
  FrameHeader header;
  if (available < sizeof header) return Item::kNothing;
  std::memcpy(&header, at, sizeof header);
  const bool is_payload = header.kind == FrameKind::kPayload;
  const std::size_t limit = is_payload && !cipher_ ? kPlainFrameBytes : kFrameBytes;
  const bool has_answers = header.kind == FrameKind::kAnswers;
  const bool is_known = is_payload || has_answers || header.kind == FrameKind::kMessages;
  if (!is_known || header.size == 0 || header.size > limit || is_payload != expects_payload() ||
      (is_payload && header.size > expected_)) {
    return Status(Code::kCorrupted,
                  fmt::format("a malformed frame of kind {} with {} bytes arrived",
                              static_cast<int>(header.kind), header.size));
  }
  if (is_payload && !cipher_) {
    begin_ += sizeof header;
    in_frame_ = header.size;
    return Item::kPayload;
  }
  const std::size_t whole = sizeof header + header.size + (cipher_ ? kTagBytes : 0);
  if (available < whole) return Item::kNothing;
  std::byte* const body = at + sizeof header;
  std::byte* const to = is_payload && target_ != nullptr ? target_ : body;
  if (cipher_ && !cipher_->open({at, sizeof header}, body, header.size, to)) {
    return Status(Code::kCorrupted, "a frame arrived that the peer has not sent in this place");
  }
  begin_ += whole;
  if (is_payload) {
    advance_payload(header.size);
    return Item::kPayload;
  }
  body_ = {body, header.size};
  return has_answers ? Item::kAnswers : Item::kMessages;
}

}  // namespace dunlin::transport::tcp
