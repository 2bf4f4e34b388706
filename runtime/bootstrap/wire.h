// The bootstrap's messages as bytes.
//
// A frame is a header of 12 bytes (magic, version, type, code, body length) and a body of fixed
// layout; all integers are little-endian. Every kind of message has the same fields and leaves
// those it does not need empty: there are few messages, and one layout has one decoder to get
// right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/peers.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

constexpr std::uint32_t kMagic = 0x314e4c44;  // "DLN1" in memory
constexpr std::uint16_t kVersion = 2;
constexpr std::size_t kHeaderBytes = 12;

enum class MessageType : std::uint8_t {
  // The handshake, see handshake.h.
  kHello = 1,
  kChallenge = 2,
  kProof = 3,
  kWelcome = 4,
  kReject = 5,  // code and text say why
  // From a rank. Those with a request number are answered by one kReply.
  kJoin = 16,     // wait until all have joined; number: time-out in ns
  kPublish = 17,  // text: key; value
  kLookup = 18,   // text: key; number: time-out in ns
  kBarrier = 19,  // text: name; number: time-out in ns
  kReform = 20,   // number: time-out in ns
  kGoodbye = 21,
  kHeartbeat = 22,
  // From a rank to the one that `subject` names; the coordinator hands it on with `subject` being
  // the sender.
  kLetter = 24,  // value
  // From the coordinator.
  kReply = 32,   // code, text: failure; value: of a lookup; number, ranks: of a reform
  kNotice = 33,  // subject's state is now `state`; text: why
};

struct Message {
  MessageType type = MessageType::kHeartbeat;
  Code code = Code::kOk;
  PeerState state = PeerState::kAlive;
  Rank subject{};
  std::uint64_t request = 0;  // which request a reply answers
  std::uint64_t number = 0;
  std::string text{};
  Bytes value{};
  std::vector<Rank> ranks{};
};

Bytes encode(const Message& message);

// The first message of `input`: nothing when it is not complete yet, kCorrupted when this is no
// frame of ours or larger than `max_body_bytes`. `consumed` becomes the frame's length.
Result<std::optional<Message>> decode(std::span<const std::byte> input, std::size_t max_body_bytes,
                                      std::size_t& consumed);

}  // namespace dunlin::bootstrap
