// The numbers of endpoints, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/clock.h"

namespace dunlin::transport::endpoint {

// The side that listens is rank 0 of the pair's job, and makes the decisions of its coordinator.
inline constexpr int kListener = 0;
inline constexpr int kDialer = 1;

// Peers in the handshake at a time. When there are more, the oldest gives way: a peer that knows
// the key is through within milliseconds, and a stranger can be as slow as it likes.
inline constexpr std::size_t kMaxGuests = 64;

// How long each side waits for the other one in the handshake, and a line that nobody uses any more
// for its end. The other side's thread may have to wait for a core that busy processes occupy.
inline constexpr Duration kHandshakeTime = std::chrono::seconds(10);

// How long one address of a blob is tried until there is a connection. A blob has few addresses,
// and most are never reached.
inline constexpr Duration kDialTime = std::chrono::seconds(3);

// The addresses in a blob: what is left of its 128 bytes holds 19, and hosts rarely have that many.
inline constexpr std::size_t kMaxAddresses = 16;

// How often a step of a connection that is being made is tried again, if it asks the other side or
// the service thread. Each question takes some tens of microseconds.
inline constexpr Duration kRetry = std::chrono::microseconds(200);
// The same where the last question took long.
inline constexpr Duration kLongestRetry = std::chrono::milliseconds(500);

// How long the end of a connection waits until its last messages have reached the peer. A peer that
// makes progress takes them within milliseconds.
inline constexpr Duration kFarewell = std::chrono::seconds(1);

// How often a keeper makes progress for a program that makes none. It is a delay that such a
// program doesn't notice, and a hundred short wake-ups a second are no load.
inline constexpr Duration kKeepInterval = std::chrono::milliseconds(10);

// The slots of a connection's messages. Eight KiB hold most notifications, and 16 slots cover the
// time in which an acknowledgment travels at 10 Gb/s over 100 us.
inline constexpr std::size_t kSlotBytes = 8192;
inline constexpr std::uint32_t kDepth = 16;

// The notification cells of a connection: those of its messages, and some for what comes later.
inline constexpr std::size_t kCells = 64;

// Messages that the program has sent and the peer has not taken yet, and those that have arrived
// and were not read: beyond this, send() is busy, and the peer's messages stay where they are.
inline constexpr std::size_t kMaxUnsent = std::size_t{32} << 20;
inline constexpr std::size_t kMaxUnread = std::size_t{64} << 20;

}  // namespace dunlin::transport::endpoint
