// The wire format of the bootstrap's messages.
//
// A frame is a header of 12 bytes (magic number, version, type, code, body length) and a body. All
// integers are little-endian. Messages of all types have the same fields, and a message leaves
// unused fields empty: messages are few, and one layout needs one decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
constexpr std::uint16_t kVersion = 9;
constexpr std::size_t kHeaderBytes = 12;

enum class MessageType : std::uint8_t {
  // The handshake, see handshake.h.
  kHello = 1,
  kChallenge = 2,
  kProof = 3,
  kWelcome = 4,
  kReject = 5,  // code, text: the reason
  // A rank sends these to the coordinator. One kReply answers a message with a request number; a
  // kPublish may have none.
  kJoin = 16,     // waits until all ranks have joined; number: timeout in ns
  kPublish = 17,  // text: key; value
  // number: timeout in ns
  // text: key; subject: the rank that publishes it, if known
  // Or text: topic; ranks: each publishes a value under it (Bootstrap::lookup_each)
  kLookup = 18,
  kBarrier = 19,  // text: name; number: timeout in ns
  kReform = 20,   // number: timeout in ns
  kLeave = 21,
  // Answered by one without a request number, if it has one. number: how many messages have arrived
  // at its sender (session.h). The coordinator sends it as well.
  kHeartbeat = 22,
  // text: topic; number: how many ranks use it, 0 if the sender does not know (Bootstrap::release)
  kRelease = 23,
  // A rank sends it to the rank `subject`. The coordinator forwards it with the sender as
  // `subject`.
  kMail = 24,  // value
  // A rank asks for a fence around the rank `subject` (fences.h).
  // number: that of the fence
  // ranks: those whose memory it protects
  kFence = 25,
  kRevoked = 26,  // the access of rank `subject` is revoked here
  // What a rank knows of the process that kInquire has asked for. state: kAlive or kDead.
  kTestimony = 27,
  kCancel = 28,  // its caller has given up `request`, which takes no effect from now on
  // text: name; value: record; number: timeout in ns
  // ranks: group, empty for the whole job
  // If it has no request number, it only contributes the record.
  kGather = 29,
  kRetire = 30,  // its sender will leave between two steps (step_boundary.h)
  // number: the step that its sender does not begin before it knows between which steps the members
  // change. Answers kAskStep.
  kStep = 31,
  // The coordinator sends these.
  // code, text: failure; value: result of a lookup or gather, or of a lookup of many values the
  // blobs of the first ones, as many as fit; number, ranks: of a reform. To a kJoin, value: a byte
  // if ranks under the kernel of this one have other PID namespaces
  kReply = 32,
  kNotice = 33,   // the state of rank `subject`, or of `ranks`, is now `state`; text: the reason
  kRevoke = 34,   // revoke the access of rank `subject`, which is gone, and answer with kRevoked
  kFenced = 35,   // the fence `number` is done
  kInquire = 36,  // tell whether the process `text` of rank `subject` lives, and when it ends
  kEnd = 37,      // the coordinator ends
  // The members will change on purpose; number: the present epoch. A rank answers by kStep.
  kAskStep = 38,
  kBoundary = 39,  // the members change before the step `number`
};

constexpr std::uint64_t kNoRequest = 0;

struct Message {
  MessageType type = MessageType::kHeartbeat;
  Code code = Code::kOk;
  PeerState state = PeerState::kAlive;
  Rank subject{};
  std::uint64_t request = kNoRequest;  // its number, or of the request that a reply answers
  std::uint64_t number = 0;
  std::string text{};
  Bytes value{};
  // Travels in the place of `value`, from one copy for all ranks that get the same.
  std::shared_ptr<const Bytes> shared_value{};
  std::vector<Rank> ranks{};
};

Bytes encode(const Message& message);

// Decodes the first message of `input`. Returns nothing when it is incomplete, and kCorrupted when
// it is not a valid frame or its body is larger than `max_body_bytes`. `consumed` becomes the
// length of the frame.
Result<std::optional<Message>> decode(std::span<const std::byte> input, std::size_t max_body_bytes,
                                      std::size_t& consumed);

// Decodes the answer to a lookup of several ranks, which has a blob (ByteWriter::blob) per value.
// Returns nullopt unless it consists of at least one and at most `most` blobs.
std::optional<std::vector<Bytes>> decode_values(std::span<const std::byte> answer,
                                                std::size_t most);

}  // namespace dunlin::bootstrap
