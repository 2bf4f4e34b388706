// The constants of the bootstrap and the reasons for their values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/clock.h"

namespace dunlin::bootstrap {

// The largest value that can be published. Values are addresses and keys of a few KiB. 1 MiB has
// room for a table of a thousand of them and still bounds the memory that one message makes us
// allocate.
constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;

// The longest key, barrier name, job id or reason.
constexpr std::size_t kMaxTextBytes = 4096;

// The largest message body: a value, a text, the members of a job of 65,536 ranks, fixed fields.
constexpr std::size_t kMaxBodyBytes =
    kMaxValueBytes + kMaxTextBytes + (std::size_t{256} << 10) + 64;
static_assert(kMaxBodyBytes < (std::size_t{1} << 32), "the length field has 32 bits");

// The largest message body before the sender has authenticated: a nonce, a job id, fixed fields.
constexpr std::size_t kMaxUnauthenticatedBodyBytes = 512;
constexpr std::size_t kMaxJobIdBytes = 256;
static_assert(kMaxJobIdBytes + 2 * 32 + 64 <= kMaxUnauthenticatedBodyBytes);

// The most bytes that may wait to be written to one connection. A client has one outstanding
// request at a time. So a client for which more than two answers and some notices wait does not
// read, and is disconnected.
constexpr std::size_t kMaxUnsentBytes = 4 * kMaxBodyBytes;

// How long a connection may take to authenticate. Authentication is two round trips of small
// messages, and each side may be delayed by a busy host. A half-open connection is closed soon.
constexpr Duration kHandshakeTimeout = std::chrono::seconds(2);

// How long a rank waits at one address for the first message of a coordinator before it tries the
// next address. Unauthenticated connections may keep a coordinator busy for a while.
constexpr Duration kChallengeTimeout = 2 * kHandshakeTimeout;

// The most connections that have not authenticated yet. Beyond it, the coordinator accepts no
// connection until one of them has authenticated or timed out. Others wait in the kernel's backlog.
constexpr std::size_t kMaxUnauthenticated = 128;

// A rank that has sent nothing for this many heartbeat periods is stalled.
constexpr int kStallPeriods = 10;

// A client waits for the coordinator's answer this much longer than its own deadline, because that
// answer names the missing ranks.
constexpr Duration kAnswerSlack = std::chrono::seconds(1);

// The timeout of requests that the coordinator answers at once. Its thread may have to wait for a
// core that busy ranks occupy.
constexpr Duration kPromptAnswer = std::chrono::seconds(10);

// The interval at which a waiting thread runs its chores. It delays a peer that waits for this
// process's progress. One turn costs about a microsecond and two context switches.
constexpr Duration kChoreInterval = std::chrono::microseconds(200);

// The interval between attempts to reach a coordinator that does not run yet.
constexpr Duration kConnectRetry = std::chrono::milliseconds(50);

// When a local process ends after it has left the job, the notice that it has left may still be on
// its way from a coordinator on another host. On one host, the notice always arrives first.
constexpr Duration kLeaveGrace = std::chrono::milliseconds(40);

// A host that fails without closing its connections is detected after about this time.
constexpr int kSilentHostTimeoutMs = 10'000;

}  // namespace dunlin::bootstrap
