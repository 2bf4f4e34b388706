// The numbers of the bootstrap, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/clock.h"

namespace dunlin::bootstrap {

// The largest value that can be published. Values are addresses and keys of a few KiB; a megabyte
// leaves room for a table of a thousand of them and still bounds what one message makes us
// allocate.
constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;

// Keys, barrier names, job ids and reasons.
constexpr std::size_t kMaxTextBytes = 4096;

// The largest message body: a value, a text, the list of a 64 Ki-rank membership, fixed fields.
constexpr std::size_t kMaxBodyBytes =
    kMaxValueBytes + kMaxTextBytes + (std::size_t{256} << 10) + 64;
static_assert(kMaxBodyBytes < (std::size_t{1} << 32), "the length field has 32 bits");

// The same before the sender has proved that it knows the secret: a nonce, a job id, fixed fields.
constexpr std::size_t kMaxStrangerBodyBytes = 512;
constexpr std::size_t kMaxJobIdBytes = 256;
static_assert(kMaxJobIdBytes + 2 * 32 + 64 <= kMaxStrangerBodyBytes);

// What may wait to be written to one connection. A client has one request open at a time, so more
// than two answers plus notices means that it does not read; it is then given up.
constexpr std::size_t kMaxUnsentBytes = 4 * kMaxBodyBytes;

// How long a connection may take to authenticate. It is two round trips of small messages; a second
// of scheduling delay on each side is generous, and a half-open connection is gone soon.
constexpr Duration kHandshakeTimeout = std::chrono::seconds(2);

// How long a member waits at one address for the first sign of a coordinator before it tries the
// next: strangers may occupy it for a while.
constexpr Duration kChallengeTimeout = 2 * kHandshakeTimeout;

// Connections that have not authenticated yet. Beyond this the listener rests until one of them
// proves itself or times out; others wait in the kernel's backlog.
constexpr std::size_t kMaxStrangers = 128;

// A rank that sent nothing for this many heartbeat periods counts as stalled.
constexpr int kStallPeriods = 10;

// A client waits this much longer than its deadline for the coordinator's answer, because the
// coordinator's message is the better one: it names who is missing.
constexpr Duration kAnswerSlack = std::chrono::seconds(1);

// For requests that the coordinator answers at once. It is a thread among busy ranks, perhaps
// several to a core, and may have to wait for its turn.
constexpr Duration kPromptAnswer = std::chrono::seconds(10);

// Between two turns of the chores of a thread that waits. A peer that waits for this process's
// progress waits so much longer; a turn costs about a microsecond and two context switches.
constexpr Duration kBetweenTurns = std::chrono::microseconds(200);

// Between two attempts to reach a coordinator that is not up yet.
constexpr Duration kConnectRetry = std::chrono::milliseconds(50);

// When a local process has ended, the news of its good-bye may still be on its way from a
// coordinator on another host. Within one host the good-bye always arrives first.
constexpr Duration kGoodbyeGrace = std::chrono::milliseconds(40);

// A host that vanished without closing its connections is given up after about this long.
constexpr int kSilentHostTimeoutMs = 10'000;

}  // namespace dunlin::bootstrap
