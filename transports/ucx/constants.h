// Numbers of the ucx transport, and why they are what they are.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dunlin::transport::ucx {

// First byte of a transport address and of every message: processes of builds that disagree about
// the wire format refuse one another.
inline constexpr std::uint8_t kWireVersion = 2;

// Active message numbers: what a lane carries, and what the transports tell each other.
inline constexpr unsigned kLaneMessage = 0;
inline constexpr unsigned kServiceMessage = 1;

// A put's bytes travel inside its message up to this size and are copied once more by the receiver;
// beyond it, the receiver fetches them straight into the target (rendezvous). Half round trips over
// TCP loopback, inside / fetched: 64 KiB 16 / 36 us, 188 KiB 32 / 50 us, 1 MiB 217 / 139 us.
inline constexpr std::size_t kEagerLimit = std::size_t{256} << 10;

// The same where a NIC writes by itself (RMA): the copy, about 1 us per 8 KiB, costs more than the
// round trip of 2 us that it saves, and the receiver's core would do it.
inline constexpr std::size_t kEagerLimitRma = std::size_t{8} << 10;
static_assert(kEagerLimitRma <= kEagerLimit);

// A get asks for its bytes in pieces of this size, one after the other: an owner has copied at most
// one for each get that is under way.
inline constexpr std::size_t kReadLimit = kEagerLimit;

// Beside RDMA devices, UCX locks memory for each of them and each worker before anything is sent.
// With Soft-RoCE, two devices and two workers need between 4 and 8 MiB; HCAs lock their queues,
// too.
inline constexpr std::size_t kNeededLockedMemory = std::size_t{64} << 20;

// What close() gives pending operations to end by themselves. Operations between processes that
// both make progress take milliseconds; a peer that doesn't by now is stuck, and is not waited for.
inline constexpr auto kCloseGrace = std::chrono::milliseconds(500);

// What the transport's end gives peers that are alive and not known to be stopped to answer its
// good-bye. An endpoint that is closed before costs the peer what it has not read yet, the good-bye
// included, if it sends before it reads; it would take us for dead. So it is long enough for a peer
// that the system has left waiting.
inline constexpr auto kPartingGrace = std::chrono::seconds(5);

// UCX 1.13 aborts the process when a worker goes while the answer to a peer that has just connected
// still waits for its TCP connection (ucp_request.c, "got REPLY"). Nobody tells that it does, so
// the transport's end waits until nothing has happened for so long, or for so long in all.
inline constexpr auto kQuiet = std::chrono::milliseconds(5);
inline constexpr auto kQuietGrace = std::chrono::milliseconds(100);

// After an endpoint was closed by force UCX owes nothing but callbacks: a few turns of progress.
inline constexpr auto kCancelGrace = std::chrono::milliseconds(200);

// How long a broken endpoint may still turn out to be a peer's good-bye, which then is on its way
// over the other endpoint (that may even be connecting still). A death is reported that much later:
// well within the second in which it has to be.
inline constexpr auto kVerdictGrace = std::chrono::milliseconds(200);

}  // namespace dunlin::transport::ucx
