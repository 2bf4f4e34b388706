// The numbers of the shm transport, and the reason for each.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dunlin::transport::shm {

// The first word of a segment: "DUNLSHM" and the version of the layout. Processes of builds with
// different layouts refuse each other.
inline constexpr std::uint64_t kMagic = 0x03'4d'48'53'4c'4e'55'44;

// The most regions that a process may have registered at a time; then registration fails with
// kResourceExhausted. An entry costs 8 bytes. Most programs register a handful of regions, but
// caches of inference servers are registered in thousands of parts.
inline constexpr std::size_t kMaxRegions = 16384;

// How many times peers may have GPU memory of a process open, over all its regions; then they
// cannot import more. Only memory that Dunlin has allocated counts, which is some regions per
// communicator: 64 peers can open 64 of them. An entry costs 16 bytes.
inline constexpr std::size_t kMaxOpenings = 4096;

// How often the owner looks whether peers still have memory open that it no longer uses. A look
// takes some 10 us, and the memory isn't needed at once.
inline constexpr auto kOpenersInterval = std::chrono::milliseconds(5);

// Operations on memory that is not shared are gathered up to this many bytes. Copying them takes
// some 200 us, beside which a system call is nothing.
inline constexpr std::size_t kProcessMemoryBatch = std::size_t{1} << 20;

// The most bytes that a lane holds at a time between GPU memory and memory of another process that
// is not mapped; an operation of more is carried out alone.
inline constexpr std::size_t kMostDetourBytes = std::size_t{64} << 20;

// The most copies on GPUs that a lane has in progress, together with the notifications and flushes
// behind them. Beyond that, the lane is busy. A launch takes a few microseconds, so a full queue is
// some 100 us of work for a GPU: far more than the time between two calls of progress().
inline constexpr std::size_t kGpuQueueDepth = 64;

// How long a lane that is closed waits for its copies, and a transport that ends for peers to close
// its GPU memory. The largest copies take milliseconds; a longer wait means that the GPU is stuck.
// Peers end at about the same time; one that goes on for longer must not keep this process.
inline constexpr auto kGpuCloseTime = std::chrono::seconds(5);

// The longest queue of connections that a descriptor server has not accepted yet; beyond it, peers
// try again. The kernel allows no more than net.core.somaxconn.
inline constexpr int kHandoverBacklog = 4096;

// The most connections that have not proven yet that they belong to the job; then the oldest gives
// way. A peer proves it within some microseconds, so only strangers stay for long. Each takes a
// descriptor.
inline constexpr std::ptrdiff_t kMostHandoverGuests = 64;

// How long the server waits for free descriptors, and to write what it has to log.
inline constexpr int kHandoverPauseMs = 100;

// How long a peer waits for an answer of the server, whose thread gives it within microseconds. A
// process that is stopped gives none, and is then reached by another transport.
inline constexpr auto kHandoverTime = std::chrono::seconds(10);

// The time between two attempts to connect while strangers crowd at the server.
inline constexpr auto kHandoverRetry = std::chrono::milliseconds(1);

}  // namespace dunlin::transport::shm
