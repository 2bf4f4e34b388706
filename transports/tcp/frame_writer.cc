#include "transports/tcp/frame_writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dunlin::transport::tcp {

void FrameWriter::start(CipherKind kind, const Key& key) {
  if (!staging_) staging_ = std::make_unique_for_overwrite<std::byte[]>(kStagingBytes);
  begin_ = end_ = announced_ = 0;
  open_.reset();
  payload_ = {};
  cipher_.reset();
  is_broken_ = false;
  if (kind != CipherKind::kNone) cipher_.emplace(kind, Cipher::Use::kSeal, key);
}

void FrameWriter::put_header(std::size_t at, FrameKind kind, std::size_t size) {
  FrameHeader header{};
  header.size = static_cast<std::uint32_t>(size);
  header.kind = kind;
  std::memcpy(staging_.get() + at, &header, sizeof header);
}

// Seals the body of the frame whose header is at this place in the staging buffer.
void FrameWriter::seal(std::size_t header_at, const std::byte* plain, std::size_t size) {
  std::byte* const header = staging_.get() + header_at;
  if (!cipher_->seal({header, sizeof(FrameHeader)}, plain, size, header + sizeof(FrameHeader)))
    is_broken_ = true;
}

std::byte* FrameWriter::append(FrameKind kind, std::size_t size) {
  if (!payload_.empty()) return nullptr;
  const bool is_full = open_ && end_ - *open_ - sizeof(FrameHeader) + size > kFrameBytes;
  if (is_full || kind != open_kind_) close_frame();
  const std::size_t needed = (open_ ? 0 : sizeof(FrameHeader)) + size + tag_size();
  if (kStagingBytes - end_ < needed) return nullptr;
  if (!open_) {
    open_ = end_;
    open_kind_ = kind;
    end_ += sizeof(FrameHeader);
  }
  std::byte* const message = staging_.get() + end_;
  end_ += size;
  return message;
}

void FrameWriter::close_frame() {
  if (!open_) return;
  const std::size_t size = end_ - *open_ - sizeof(FrameHeader);
  put_header(*open_, open_kind_, size);
  if (cipher_) {
    seal(*open_, staging_.get() + *open_ + sizeof(FrameHeader), size);
    end_ += kTagBytes;
  }
  open_.reset();
}

void FrameWriter::attach(std::span<const std::byte> payload) {
  close_frame();
  payload_ = payload;
}

// Seals one frame, unless another one waits. So the peer opens a frame while the next one is
// sealed, and the staging buffer stays in the cache.
void FrameWriter::seal_payload() {
  const std::size_t size = std::min(payload_.size(), kFrameBytes);
  if (size == 0 || end_ - begin_ > kFrameBytes / 2) return;
  if (kStagingBytes - end_ < sizeof(FrameHeader) + size + kTagBytes) return;
  put_header(end_, FrameKind::kPayload, size);
  seal(end_, payload_.data(), size);
  end_ += sizeof(FrameHeader) + size + kTagBytes;
  payload_ = payload_.subspan(size);
}

void FrameWriter::announce_payload() {
  if (payload_.empty() || announced_ != 0) return;
  if (kStagingBytes - end_ < sizeof(FrameHeader)) return;
  announced_ = std::min(payload_.size(), kPlainFrameBytes);
  put_header(end_, FrameKind::kPayload, announced_);
  end_ += sizeof(FrameHeader);
}

void FrameWriter::consume(std::size_t written) {
  const std::size_t staged = std::min(written, end_ - begin_);
  begin_ += staged;
  if (begin_ == end_) begin_ = end_ = 0;
  announced_ -= written - staged;
  payload_ = payload_.subspan(written - staged);
}

Status FrameWriter::flush(int socket, std::size_t& budget) {
  close_frame();
  for (;;) {
    if (cipher_) {
      seal_payload();
    } else {
      announce_payload();
    }
    if (is_broken_) return {Code::kInternal, "the cipher library failed to encrypt"};
    if (begin_ == end_ && payload_.empty()) return Status::ok();
    if (budget == 0) return Status::busy();
    iovec parts[2] = {{staging_.get() + begin_, end_ - begin_},
                      {const_cast<std::byte*>(payload_.data()), std::min(announced_, budget)}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = announced_ != 0 ? 2 : 1;
    const ssize_t written = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return Status::busy();
      return Status::from_errno("send", errno);
    }
    consume(static_cast<std::size_t>(written));
    budget -= std::min(budget, static_cast<std::size_t>(written));
  }
}

}  // namespace dunlin::transport::tcp
