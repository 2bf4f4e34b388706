// Frames: how bytes travel on a connection after the handshake. A frame is a header, a body, and,
// if the connection is encrypted, a tag. A frame holds whole messages, whole answers, or a piece of
// the payload that follows a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "transports/tcp/cipher.h"
#include "transports/tcp/constants.h"

namespace dunlin::transport::tcp {

enum class FrameKind : std::uint8_t { kMessages = 1, kPayload = 2, kAnswers = 3 };

struct FrameHeader {
  std::uint32_t size;  // of the body
  FrameKind kind;
  std::uint8_t reserved[3];
};
static_assert(sizeof(FrameHeader) == 8 && std::is_trivially_copyable_v<FrameHeader>);
static_assert(kFrameBytes + sizeof(FrameHeader) + kTagBytes <= kStagingBytes / 4);

}  // namespace dunlin::transport::tcp
