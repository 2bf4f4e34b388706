// Numbers of the verbs transport, and why they are what they are.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "runtime/clock.h"

namespace dunlin::transport::verbs {

// In an address, a letter and a connection request: builds that disagree about what travels refuse
// one another.
inline constexpr std::uint8_t kWireVersion = 5;

// Largest inline size that is asked for: a whole record, and small puts, leave with the work
// request and cost the NIC no read of our memory. What the created QP reports counts.
inline constexpr std::uint32_t kInlineWanted = 128;

// Unsignalled work requests in a row, at most (less on short queues): a completion is what frees
// the send queue, and costs a DMA write and a poll.
inline constexpr std::uint32_t kSignalEvery = 16;

// Work requests handed to the NIC by one call (one doorbell), at most. More save nothing
// measurable, and the chain lives on the stack.
inline constexpr std::uint32_t kBatch = 16;

// Completions taken from a queue by one call, at most: beyond it, the other queues get their turn.
inline constexpr int kPollBatch = 32;

// "For ever": flow control keeps the receive queue from running dry, so that this is waited for
// only by a NIC that is behind with its own bookkeeping.
inline constexpr std::uint8_t kReceiverNotReadyRetries = 7;

// Reads and atomics that a queue pair has on the way at most (less where a device has less): each
// takes the other end's device a place to answer from, and 16 hide the round trip behind the bytes.
inline constexpr std::uint8_t kReads = 16;

// Ports of a process and queue pairs per port, at most (the ranges of DUNLIN_VERBS_RAILS and
// DUNLIN_VERBS_QP_COUNT): hosts with eight NICs have a GPU for each, and more queue pairs than that
// keep no link busier. Rails are numbered in a byte.
inline constexpr std::size_t kMostPorts = 8;
inline constexpr std::size_t kMostQueuePairs = 8;
static_assert(kMostPorts * kMostQueuePairs < 256);

// Puts are cut at multiples of this: the largest MTU, so that no rail sends a packet more than one
// queue pair would.
inline constexpr std::uint64_t kStripeStep = 4096;

// How long a receiver that is not ready asks for, all the same: code 12 is 0.64 ms.
inline constexpr std::uint8_t kReceiverNotReadyTimer = 12;

// What close() gives pending operations to end by themselves, and connections to say good-bye: by
// default, and at most, where DUNLIN_VERBS_TIMEOUT makes them take longer.
inline constexpr Duration kCloseGrace = std::chrono::milliseconds(500);
inline constexpr Duration kLongestCloseGrace = std::chrono::seconds(10);
// Once a queue pair is in its error state the NIC gives its work requests back at once.
inline constexpr auto kFlushGrace = std::chrono::milliseconds(500);

// Connecting again: the pause between two attempts, and how long an attempt may take, which doubles
// with each: the peer may be busy elsewhere.
inline constexpr auto kReconnectPause = std::chrono::milliseconds(100);
inline constexpr Duration kFirstAttempt = std::chrono::seconds(1);
inline constexpr Duration kLongestAttempt = std::chrono::seconds(16);

// Between two looks at lanes that wait for room at a peer that may have forgotten them.
inline constexpr auto kProbeInterval = std::chrono::seconds(1);

// Connections in a row that complete nothing: no link flaps like that.
inline constexpr int kFruitlessConnections = 20;

// Resolving an address or a route, per try.
inline constexpr auto kResolveTimeout = std::chrono::milliseconds(2000);

// Between two looks at the connectors' descriptors while nothing says that there is something: a
// system call, which a poll of completion queues is not. Who connects to us waits so long.
inline constexpr auto kEventInterval = std::chrono::milliseconds(1);

// Between two READs by which a flush finds out whether the peer has copied to its GPU what was put
// there: a small part of what a copy takes.
inline constexpr auto kLandingInterval = std::chrono::microseconds(20);
// Turns of progress between two looks at the clock, which costs as much as a poll. Few, because
// some callers compute for long between two turns.
inline constexpr std::uint32_t kTurnsPerClock = 8;

}  // namespace dunlin::transport::verbs
