// The numbers of the verbs transport, and the reason for each.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "runtime/clock.h"

namespace dunlin::transport::verbs {

// Stands in addresses, connection messages and connection requests. Builds with different wire
// formats refuse each other.
inline constexpr std::uint8_t kWireVersion = 8;

// The inline sizes that queue pairs are created with: the first that the device grants. Inline data
// travel inside their work request, so that the device need not read them from memory. 128 bytes
// take a small put and any record. irdma allows 101 bytes, so 96 are asked for. 64 bytes are the
// longest record, and 32 take a record without inline data (24 bytes). Some devices (28 bytes) have
// room for that only. More than 128 would make each place in the send queue larger for puts whose
// time is that of the wire. The queue pair may be granted more than it asked for.
inline constexpr std::uint32_t kInlineSizes[] = {128, 96, 64, 32, 24, 0};
inline constexpr std::uint32_t kInlineWanted = kInlineSizes[0];

// At most this many work requests follow one another without a signaled one (fewer on short
// queues). Only a completion frees places in the send queue, but it costs a DMA write and a poll.
inline constexpr std::uint32_t kSignalEvery = 16;

// At most this many work requests are posted by one call (one doorbell). More save nothing
// measurable, and the chain is on the stack.
inline constexpr std::uint32_t kBatch = 16;

// At most this many completions are taken from a queue by one call. Then the other queues follow.
inline constexpr int kPollBatch = 32;

// 7 means forever. Flow control keeps the receive queue from running dry, so a sender retries only
// while the receiver's device is behind with its own bookkeeping.
inline constexpr std::uint8_t kReceiverNotReadyRetries = 7;

// A queue pair has at most this many outstanding reads and atomics, or fewer if the device's limit
// is lower. Each takes resources of the other end's device, and 16 are enough to hide the round
// trip.
inline constexpr std::uint8_t kReads = 16;

// The most ports of a process, and queue pairs per port: the ranges of DUNLIN_VERBS_RAILS and
// DUNLIN_VERBS_QP_COUNT. Hosts with eight NICs have a GPU for each, and more queue pairs do not
// keep a link busier. The number of a rail fits into a byte.
inline constexpr std::size_t kMostPorts = 8;
inline constexpr std::size_t kMostQueuePairs = 8;
static_assert(kMostPorts * kMostQueuePairs < 256);

// Puts are cut at multiples of the largest MTU, so that the rails together send no more packets
// than one queue pair would.
inline constexpr std::uint64_t kStripeStep = 4096;

// The delay that a receiver that is not ready asks for: code 12 is 0.64 ms.
inline constexpr std::uint8_t kReceiverNotReadyTimer = 12;

// A connection has to survive a pause of this length by default, in which the network takes no
// packets. Priority flow control makes such pauses: a switch whose queue doesn't drain holds its
// neighbors up until its watchdog drops the queue, after 0.2 to 0.4 s by the usual settings, and
// the drop costs another retransmission. A network of several switches adds such times. The
// defaults of DUNLIN_VERBS_TIMEOUT and DUNLIN_VERBS_RETRY_COUNT give 7 tries of 0.54 s, which is
// 3.8 s. A dead process is noticed sooner all the same, by the bootstrap. The price is that a lost
// packet that nothing follows is sent again only after 0.54 s; all others are asked for at once.
inline constexpr Duration kLongestPause = std::chrono::seconds(2);

// How long close() waits for pending operations to complete: by default, and at most if
// DUNLIN_VERBS_TIMEOUT makes them take longer.
inline constexpr Duration kCloseGrace = std::chrono::milliseconds(500);
inline constexpr Duration kLongestCloseGrace = std::chrono::seconds(10);
// How long to wait for the work requests of a queue pair in its error state. The device returns
// them at once.
inline constexpr auto kFlushGrace = std::chrono::milliseconds(500);

// Connecting again: the pause between two attempts, and the timeouts of the first and the longest
// attempt. The timeout doubles with each attempt, since the peer may be busy.
inline constexpr auto kReconnectPause = std::chrono::milliseconds(100);
inline constexpr Duration kFirstAttempt = std::chrono::seconds(1);
inline constexpr Duration kLongestAttempt = std::chrono::seconds(16);

// The interval between two looks at each connection: whether its queue pair has hung, and, if the
// lane waits for room, whether the peer still has the connection.
inline constexpr auto kProbeInterval = std::chrono::seconds(1);

// After this multiple of the time for which a device tries to send a packet by its settings, the
// packet has arrived or was given up. Devices may take up to four times that time (InfiniBand
// Architecture Specification, 9.7.6.1.3). A region that Dunlin allocated stays registered for so
// long after it was deregistered here. The device refuses later writes to it.
inline constexpr int kGivenUpFactor = 5;

// A queue pair that returns nothing for longer than that has hung, and is replaced. Two constants
// keep slow ones from being taken for it: the least time of a hang, and the bytes per second that a
// queue pair carries at least. Soft-RoCE in a guest carries about as much when one packet of a
// hundred is lost and others overtake one another.
inline constexpr Duration kShortestHang = std::chrono::seconds(2);
inline constexpr std::uint64_t kSlowestQueuePair = std::uint64_t{64} << 10;

// A lane fails after more than this many connections in a row that completed nothing. No link flaps
// like that.
inline constexpr int kFruitlessConnections = 20;

// How long a lane that needs a connection waits for an idle one to be given up, if the process has
// as many as it should. After that it is made all the same, so that lanes which cannot be idle,
// because their peers are late, hold up no other lane. A lane's first connection is kept for so
// long for the operation that it was made for, which the lane's user tries again.
inline constexpr auto kPlaceTimeout = std::chrono::seconds(1);

// An end that was asked to leave its place, and has not left after this time, is taken to be busy.
inline constexpr auto kLeaveTimeout = std::chrono::seconds(3);

// At most this many messages of the transport itself wait for a lane without a connection. Of more,
// the oldest are dropped. They only announce that a region was deregistered, and the device refuses
// later writes to it anyway.
inline constexpr std::size_t kMostWaitingServices = 64;

// The timeout for resolving an address or a route, per try.
inline constexpr auto kResolveTimeout = std::chrono::milliseconds(2000);

// The interval between two polls of the connectors for events. Such a poll is a system call, unlike
// a poll of completion queues. A peer that connects may wait this long.
inline constexpr auto kEventInterval = std::chrono::milliseconds(1);

// The interval between two READs by which a flush finds out whether the peer has copied the bytes
// to its GPU: a small part of the time that a copy takes.
inline constexpr auto kLandingInterval = std::chrono::microseconds(20);
// The clock is read once in this many turns of progress, because reading it costs as much as a
// poll. The number is small because some callers compute for long between two turns.
inline constexpr std::uint32_t kTurnsPerClock = 8;

}  // namespace dunlin::transport::verbs
