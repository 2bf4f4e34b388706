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

// The most connections that have not authenticated yet, or one for each rank in a larger job, whose
// ranks may all connect at once. Beyond it, each new one takes the place of the oldest, of those
// that have sent nothing if there are any. So strangers that only connect do not keep ranks out.
constexpr std::size_t kMaxUnauthenticated = 128;

// The most connections that the coordinator accepts before it serves those that it has. A rank's
// connection is served before strangers that connect all the time can take its place.
constexpr std::size_t kMaxAcceptedAtOnce = kMaxUnauthenticated / 4;

// The most events that the coordinator takes from the kernel at a time.
constexpr std::size_t kMostEvents = 256;

// The interval between two lines of the log about strangers.
constexpr Duration kLogInterval = std::chrono::seconds(1);

// The longest reason in a rejection; longer ones are cut. It leaves room for the proof.
constexpr std::size_t kMaxReasonBytes = 400;
static_assert(kMaxReasonBytes + 32 + 64 <= kMaxUnauthenticatedBodyBytes);

// The shortest secret that a user may set. An attacker that has recorded a handshake can try
// secrets offline as fast as it computes HMACs; 16 random letters or digits withstand that.
constexpr std::size_t kMinSecretBytes = 16;

// How much the coordinator keeps for one rank, of values, and apart from them of releases: a rank
// publishes a few keys when it makes a communicator or a window, some of them per peer. Beyond it,
// kResourceExhausted. So a rank that publishes in a loop does not take all memory of the
// coordinator's host.
constexpr std::size_t kMaxKeptKeys = std::size_t{1} << 16;
constexpr std::size_t kMaxKeptKeysPerPeer = 64;
constexpr std::size_t kMaxKeptBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxKeptBytesPerPeer = std::size_t{16} << 10;
// What a key costs beside its bytes and those of its value.
constexpr std::size_t kKeptEntryBytes = 128;

// A rank that has sent nothing for this many heartbeat periods is stalled.
constexpr int kStallPeriods = 10;

// A client waits for the coordinator's answer this much longer than its own deadline, because that
// answer names the missing ranks.
constexpr Duration kAnswerSlack = std::chrono::seconds(1);

// The timeout of requests that the coordinator answers at once. Its thread may have to wait for a
// core that busy ranks occupy.
constexpr Duration kPromptAnswer = std::chrono::seconds(10);

// The interval at which a waiting thread runs its chores. It delays a peer that waits for this
// process's progress, except for mail, which is handled at once. One turn costs about a microsecond
// and two context switches. The interval is multiplied by the number of ranks per core, up to
// kLongestChoreInterval, so that idle turns take the same share of a core.
constexpr Duration kChoreInterval = std::chrono::microseconds(200);
constexpr Duration kLongestChoreInterval = std::chrono::seconds(1);

// The interval between attempts to reach a coordinator that does not run yet.
constexpr Duration kConnectRetry = std::chrono::milliseconds(50);

// The same after a refusal that proves nothing. The coordinator of an earlier job, which may still
// use the port, ends within seconds.
constexpr Duration kRefusedRetry = std::chrono::milliseconds(250);

// After a notice of departures, the coordinator waits this long for each rank of the job, at most
// kLongestDeparture, before it sends the next one. That one names all ranks that have left
// meanwhile, whose leave() returns then. To receive a notice takes about 10 us. So if all ranks are
// on one host, notices take a fifth of a core, and more beyond 5,000 ranks, where the limit holds.
constexpr Duration kDepartureInterval = std::chrono::microseconds(50);
constexpr Duration kLongestDeparture = std::chrono::milliseconds(250);

// How often per heartbeat the coordinator looks for stalled ranks.
constexpr int kLooksPerHeartbeat = 4;

// When a local process ends after it has left the job, the notice that it has left may still be on
// its way from the coordinator. From another host it may be lost once, and TCP may take 200 ms to
// send it again.
constexpr Duration kLeaveGrace = std::chrono::milliseconds(40);
constexpr Duration kRemoteLeaveGrace = std::chrono::milliseconds(300);
static_assert(kRemoteLeaveGrace < std::chrono::seconds(1));  // by which a death has to be told

// A connection that ended with a FIN is the end of its process, unless the rank is back within this
// time. A rank that lives connects again every kConnectRetry. A death has to be told within a
// second.
constexpr Duration kConfirmTime = std::chrono::milliseconds(700);
static_assert(kConfirmTime >= 10 * kConnectRetry);
static_assert(kConfirmTime + kLeaveGrace < std::chrono::seconds(1));

// While a rank is absent, the coordinator looks at its clock this often. If it did not run for
// kLongestNap, because its process or its host was stopped, that time does not count, and those
// that are absent have at least kConfirmTime to come back.
constexpr Duration kLookInterval = std::chrono::milliseconds(100);
constexpr Duration kLongestNap = kConfirmTime / 2;
static_assert(kLongestNap >= 3 * kLookInterval);

// How many ranks of a host the coordinator asks about the process of another one. The second serves
// when the first is stopped.
constexpr std::size_t kWitnesses = 2;

// A rank asks for an answer to every fourth of its heartbeats: often enough to find a silent path
// within ten of them, and a quarter of the messages.
constexpr int kHeartbeatsPerAnswer = 4;
static_assert(2 * kHeartbeatsPerAnswer < kStallPeriods);

// A rank is cut off after three quarters of the time after which the coordinator counts it as dead.
// The last quarter is for clocks that run differently, and for its threads to take notice.
constexpr int kCutOffNumerator = 3;
constexpr int kCutOffDenominator = 4;

// A rank takes a path for silent no sooner than this, as the coordinator may have to wait for a
// core.
constexpr Duration kShortestSilence = kHandshakeTimeout;

// How long one attempt of a rank to come back may take. A rank that leaves waits for the end of it.
constexpr Duration kAttemptTime = std::chrono::seconds(1);

// The shortest DUNLIN_RECONNECT_TIMEOUT for a heartbeat. A rank's last heartbeat that was answered
// may be kHeartbeatsPerAnswer old when a path falls silent. It notices the silence, makes one
// attempt to come back, and is cut off by then, in three quarters of the time after which it counts
// as dead. So the last quarter stays a margin.
constexpr Duration shortest_grace(Duration heartbeat) {
  const Duration silence =
      kStallPeriods * heartbeat > kShortestSilence ? kStallPeriods * heartbeat : kShortestSilence;
  const Duration stopped = kHeartbeatsPerAnswer * heartbeat + silence + kAttemptTime;
  return stopped * kCutOffDenominator / kCutOffNumerator;
}

// The longest name of a process: a boot id and three numbers.
constexpr std::size_t kMaxProcessBytes = 128;
static_assert(kMaxJobIdBytes + kMaxProcessBytes + 32 + 64 <= kMaxUnauthenticatedBodyBytes);

// A host that fails without closing its connections is detected after about this time.
constexpr int kSilentHostTimeoutMs = 10'000;

}  // namespace dunlin::bootstrap
