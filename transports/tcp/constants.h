// The numbers of the tcp transport, and the reason for each.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dunlin::transport::tcp {

// The first byte of a transport address and a field of both greetings. Processes of builds with
// different wire formats refuse each other.
inline constexpr std::uint8_t kWireVersion = 2;

// The most bytes in one frame of an encrypted connection. The receiver needs a whole frame before
// it can check and decrypt it, so a frame should stay in the second-level cache; its fixed cost
// (header, tag, two calls) is under 1 % of the cost of encrypting 64 KiB.
inline constexpr std::size_t kFrameBytes = std::size_t{64} << 10;

// The most bytes in one frame that carries a payload without encryption. Such a frame is never
// buffered; the limit only has to fit into the frame's 32-bit size.
inline constexpr std::size_t kPlainFrameBytes = std::size_t{1} << 30;

// The buffer in which an end collects frames before it writes them. Several small messages or
// pieces of gets share one system call.
inline constexpr std::size_t kStagingBytes = 4 * (kFrameBytes + 64);

// The buffer into which an end reads. It must hold a whole frame behind the rest of another one.
inline constexpr std::size_t kReceiveBytes = 4 * (kFrameBytes + 64);
static_assert(kReceiveBytes >= 2 * (kFrameBytes + 64));

// The most bytes that an end reads at once into that buffer if the connection is not encrypted.
// Only the part of a payload that was read into the buffer, behind its message, has to be copied.
// The rest is read straight to its place, so this limit bounds the copy. 32 KiB hold more than 300
// small messages.
inline constexpr std::size_t kPlainAhead = std::size_t{32} << 10;

// Up to this size, the bytes of a put travel in the same frame as its header. Beyond it, they
// follow in frames of their own, which need no copy at either end.
inline constexpr std::size_t kWithinLimit = std::size_t{16} << 10;
static_assert(kWithinLimit + 256 <= kFrameBytes);

// Up to this size, the bytes of a put are copied when it is posted, so that its buffer is free as
// soon as they are in the socket. Larger puts complete when the peer has acknowledged them, which
// saves the copy and costs a round trip. A copy of 32 KiB takes some 2 us, a round trip 10 us and
// more: an all-reduce of 64 KiB among 4 ranks takes 130 to 180 us with this limit, and 170 to 240
// us with 4 KiB.
inline constexpr std::size_t kKeptLimit = std::size_t{32} << 10;

// The room of a lane for such copies. If it is used up, a small put completes as a large one does.
inline constexpr std::size_t kKeptBytes = std::size_t{256} << 10;
static_assert(kKeptBytes >= 2 * kKeptLimit);

// The bytes of a get travel in pieces of this size, each in one frame with its header.
inline constexpr std::size_t kReadPiece = kFrameBytes - 256;

// A peer that has more gets to be answered breaks the protocol, and its connection is ended. The
// largest queue depth (Config::tcp_queue_depth) is the most that a peer can have outstanding.
inline constexpr std::size_t kMostPendingReads = 65536;

// After this many frames, both ends of a direction derive its next key from the current one. It is
// 4 GiB of full frames, far below what AES-256-GCM allows for one key (2^32 blocks of 16 bytes).
inline constexpr std::uint64_t kFramesPerKey = std::uint64_t{1} << 16;

// The most bytes that one connection sends, and the most that it receives, before the others get
// their turn.
inline constexpr std::size_t kTurnBytes = std::size_t{1} << 20;

// How long a new lane to a lower rank waits for a connection of that rank, which it can join,
// before it makes one. Most links are made at both ends at about the same time.
inline constexpr auto kJoinTime = std::chrono::milliseconds(10);

// The most turns in which an end reads what a broken connection still holds.
inline constexpr int kMostLastTurns = 64;

// The most events that one poll returns.
inline constexpr int kMostEvents = 32;

// The most connections that have not sent a greeting that proves the knowledge of the job's key.
// When another one arrives, the oldest gives way at once. A member sends its greeting as soon as it
// is connected, and a greeting that is there is read when the connection is accepted, so strangers
// cannot drive members out, however many come.
inline constexpr std::size_t kMostSilentGuests = 256;

// The most connections that have greeted, and have to send their proof. Only members get so far.
// When another one arrives, the oldest gives way, but only after kGuestGrace, because a member
// needs a round trip to send its proof. Until then, new connections wait in the kernel. Otherwise,
// thousands of ranks that connect at once would drive one another out.
inline constexpr std::size_t kMostGreetedGuests = 512;
inline constexpr auto kGuestGrace = std::chrono::seconds(1);

// The most connections that are accepted in one turn.
inline constexpr int kMostAccepted = 64;

// The greetings that were answered are remembered, so that a recorded one does not cost this
// process another key exchange. Beyond this number, which takes some 3 MiB, they are forgotten.
inline constexpr std::size_t kMostRemembered = std::size_t{1} << 16;

// The most addresses that a process names before it listens. Hosts have a handful; some have one
// for each of many containers. An address takes 23 bytes of what Transport::kLargestOutline allows.
inline constexpr std::size_t kMostOutlined = 64;

// Connections that wait in the kernel until this process accepts them.
inline constexpr int kBacklog = 1024;

// How long the peer may take to answer a greeting or a proof, and how long an attempt to connect
// may take, before the peer's next address is tried.
inline constexpr auto kHandshakeTimeout = std::chrono::seconds(5);
inline constexpr auto kConnectTimeout = std::chrono::seconds(3);

// How long a connection that was accepted may take to prove itself. A member needs two calls of
// progress() for that, and a rank that computes may call progress() every few seconds only. The
// numbers above bound what strangers cost meanwhile.
inline constexpr auto kGuestTimeout = std::chrono::seconds(60);
static_assert(kGuestGrace < kGuestTimeout);

// How long a lane waits after it has tried all addresses of the peer in vain. The first wait is the
// shorter one; each further wait is twice as long, up to the longer one.
inline constexpr auto kFirstRetryDelay = std::chrono::milliseconds(10);
inline constexpr auto kLongestRetryDelay = std::chrono::milliseconds(500);

// If no address of the peer accepts connections for this long after a connection was lost, or for
// DUNLIN_RECONNECT_TIMEOUT if that is longer, the peer counts as dead. It is longer than a switch
// or a bonded link takes to change over. The death of a process is reported much sooner by the
// bootstrap.
inline constexpr auto kRenewTimeout = std::chrono::seconds(10);

// A connection is renewed if it has had unacknowledged bytes for this long and no TCP
// acknowledgment has arrived meanwhile. The peer's kernel acknowledges even while the peer itself
// is stopped.
inline constexpr auto kSilentPathTimeout = std::chrono::seconds(10);
inline constexpr auto kPathCheckInterval = std::chrono::seconds(1);

// At most one line about refused connections is logged in this time.
inline constexpr auto kRefusalLogInterval = std::chrono::seconds(1);

// How long close() waits for pending operations to complete. Operations between processes that both
// make progress take milliseconds. A peer that takes longer is stuck, and is not waited for.
inline constexpr auto kCloseGrace = std::chrono::milliseconds(500);

// How long the transport waits, when it is destroyed, until peers that are alive have read that it
// closes and have closed their ends.
inline constexpr auto kShutdownGrace = std::chrono::seconds(1);

}  // namespace dunlin::transport::tcp
