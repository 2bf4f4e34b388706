// The numbers of the ucx transport, and the reason for each.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dunlin::transport::ucx {

// The first byte of a transport address and of every message. Processes of builds with different
// wire formats refuse each other.
inline constexpr std::uint8_t kWireVersion = 2;

// Active message numbers: messages of lanes, and messages between the transports themselves.
inline constexpr unsigned kLaneMessage = 0;
inline constexpr unsigned kServiceMessage = 1;

// Up to this size, the bytes of a put travel inside its message, and the receiver copies them once
// more. Beyond it, the receiver fetches them straight into the target (rendezvous). Half round
// trips over TCP loopback, inside / fetched: 64 KiB 16 / 36 us, 188 KiB 32 / 50 us, 1 MiB 217 / 139
// us.
inline constexpr std::size_t kEagerLimit = std::size_t{256} << 10;

// The eager limit if a NIC writes by itself (RMA). Beyond it, the copy, which takes the receiver's
// core about 1 us per 8 KiB, costs more than the round trip of 2 us that it saves.
inline constexpr std::size_t kEagerLimitRma = std::size_t{8} << 10;
static_assert(kEagerLimitRma <= kEagerLimit);

// A get asks for its bytes in pieces of this size, one after the other. An owner holds at most one
// copied piece for each get in progress.
inline constexpr std::size_t kReadLimit = kEagerLimit;

// If there are RDMA devices, UCX locks memory for each device and each worker before anything is
// sent. With Soft-RoCE, two devices and two workers need between 4 and 8 MiB. Hardware devices lock
// their queues, too.
inline constexpr std::size_t kNeededLockedMemory = std::size_t{64} << 20;

// How long close() waits for pending operations to complete. Operations between processes that both
// make progress take milliseconds. A peer that takes longer is stuck, and is not waited for.
inline constexpr auto kCloseGrace = std::chrono::milliseconds(500);

// How long the transport waits, when it is destroyed, for peers that are alive and not known to be
// stopped to acknowledge that it closes. If an endpoint is closed earlier, and the peer sends
// before it reads, the peer loses the messages that it has not read, including the closing message;
// it would take this process for dead. So this is long enough for a peer that the scheduler keeps
// waiting.
inline constexpr auto kShutdownGrace = std::chrono::seconds(5);

// UCX 1.13 aborts the process if a worker is destroyed while the answer to a peer that has just
// connected still waits for its TCP connection (ucp_request.c, "got REP message"). UCX does not
// report this state. So the transport waits, when it is destroyed, until nothing has happened for
// kQuiet, or for kYoungQuiet if its last connection is younger than kYouth, because a peer whose
// host is busy answers late. It waits for at most kQuietGrace.
inline constexpr auto kQuiet = std::chrono::milliseconds(5);
inline constexpr auto kYoungQuiet = std::chrono::milliseconds(50);
inline constexpr auto kYouth = std::chrono::seconds(2);
inline constexpr auto kQuietGrace = std::chrono::milliseconds(300);

// How long to wait for UCX's callbacks after an endpoint was closed by force. They take a few turns
// of progress.
inline constexpr auto kCancelGrace = std::chrono::milliseconds(200);

// How long to wait, after an endpoint broke, for a message that the peer closes its end. It arrives
// over the other endpoint, which may even be connecting still. A death is reported this much later,
// which is well within the required second.
inline constexpr auto kVerdictGrace = std::chrono::milliseconds(200);

}  // namespace dunlin::transport::ucx
