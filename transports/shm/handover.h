// The protocol by which a process hands descriptors of its memory to peers in other PID namespaces
// of the host, which cannot open them through /proc: a Unix socket of the kind SOCK_SEQPACKET.
//
// Strangers of the host can connect to an abstract socket, and can bind its name once its owner has
// ended. So both ends prove that they know the job's key before either serves or believes the
// other: the owner sends a Challenge, the peer a Response, the owner an Acceptance. The proofs
// cover both nonces, the socket's name and the role, so that they are worth nothing elsewhere. Then
// the peer sends requests, each of which a reply answers. Both ends run under one kernel, so
// integers have its byte order.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/bootstrap/secret.h"
#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin::transport::shm {

// What a peer asks for. A region is offered under its generation (segment.h), which counts from 1.
using OfferKey = std::uint64_t;
inline constexpr OfferKey kSegmentOffer = ~std::uint64_t{0};
inline constexpr OfferKey kBoardOffer = kSegmentOffer - 1;
inline constexpr OfferKey kDoorbellOffer = kSegmentOffer - 2;
inline constexpr OfferKey kProcessOffer = kSegmentOffer - 3;  // a pidfd
inline constexpr OfferKey kMemoryOffer = kSegmentOffer - 4;   // /proc/PID/mem

// Where a process listens, and how its peers reach it. Part of its address (segment.h).
struct HandoverPlace {
  std::string name;           // of the socket; empty: it does not listen
  bool is_in_folder = false;  // in its DUNLIN_SHM_DIR; otherwise abstract, in a network namespace
  std::uint64_t network_namespace = 0;
  std::string refusal;  // why it does not listen
};
// The network namespace of this process; 0 if it cannot be told.
std::uint64_t this_network_namespace();

struct SocketAddress {
  sockaddr_un bytes{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};
// `folder` is empty for an abstract socket. kInvalidArgument if the path is too long for a socket.
Result<SocketAddress> make_socket_address(const std::string& name, const std::string& folder);

inline constexpr std::uint64_t kHandoverMagic = 0x01'44'48'4e'4c'4e'55'44;  // "DUNLNHD", version
struct Challenge {
  std::uint64_t magic = kHandoverMagic;
  bootstrap::Nonce nonce{};
};
struct Response {
  std::uint64_t magic = kHandoverMagic;
  bootstrap::Nonce nonce{};
  bootstrap::Proof proof{};
};
struct Acceptance {
  std::uint64_t magic = kHandoverMagic;
  bootstrap::Proof proof{};
};
struct OfferRequest {
  std::uint64_t magic = kHandoverMagic;
  OfferKey key = 0;
};
// Comes with the descriptor if `is_given`.
struct OfferReply {
  std::uint64_t magic = kHandoverMagic;
  std::uint64_t is_given = 0;
};

enum class HandoverRole : std::uint8_t { kOwner = 1, kPeer = 2 };
struct HandoverClaims {
  HandoverRole role = HandoverRole::kOwner;
  const std::string& socket;
  bootstrap::Nonce owner;
  bootstrap::Nonce peer;
};
bootstrap::Proof prove(const JobKey& key, const HandoverClaims& claims);
bool proves(const bootstrap::Proof& proof, const JobKey& key, const HandoverClaims& claims);

// kUnavailable if the process at the other end certainly belongs to another user. A user that has
// no id in this user namespace passes, because only the proof can tell then.
Status check_user(int socket);

// Sends a message, with a descriptor if it is not -1. Never blocks, and raises no signal.
Status send_message(int socket, std::span<const std::byte> message, int descriptor = -1);
// kBusy if none has arrived, kClosed if the other end has closed, and kCorrupted for a message of
// another size. The first descriptor that comes with the message goes to `descriptor`; the kernel
// discards further ones, and all of them if that is null.
Status receive_message(int socket, std::span<std::byte> message, Fd* descriptor = nullptr);

template <typename T>
Status send_message(int socket, const T& message, int descriptor = -1) {
  return send_message(socket, std::as_bytes(std::span(&message, 1)), descriptor);
}
template <typename T>
Status receive_message(int socket, T& message, Fd* descriptor = nullptr) {
  DUNLIN_TRY(receive_message(socket, std::as_writable_bytes(std::span(&message, 1)), descriptor));
  if (message.magic == kHandoverMagic) return Status::ok();
  return {Code::kCorrupted, "the message is of no Dunlin process, or of one of another version"};
}

}  // namespace dunlin::transport::shm
