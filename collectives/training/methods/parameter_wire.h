// The protocol between workers and parameter servers: roles, messages, and keys at the bootstrap.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "collectives/training/method.h"
#include "collectives/training/methods/pieces.h"
#include "runtime/bytes.h"
#include "transports/channel/slot_exchange.h"

namespace dunlin::training {

// The kind of a message from worker to server. It is part of the message's tag, together with the
// number of the piece that the message carries.
enum class ParameterMessage : std::uint32_t {
  kInitial = 1,   // a piece of the initial parameters
  kGradient = 2,  // a piece of the iteration's gradient
  kFinish = 3,    // the end of the iteration: a FinishMessage
  kLeave = 4,     // the worker's last message
};
struct ParameterTag {
  ParameterMessage message = ParameterMessage::kInitial;
  std::uint32_t piece = 0;
  std::uint64_t packed() const { return static_cast<std::uint64_t>(message) << 32 | piece; }
  static ParameterTag unpack(std::uint64_t tag) {
    return {static_cast<ParameterMessage>(tag >> 32), static_cast<std::uint32_t>(tag)};
  }
};
// Little-endian, the byte order of x86-64 and of AArch64 under Linux.
struct FinishMessage {
  float learning_rate = 0;
  std::uint32_t stop = 0;  // 1: this worker wants to end
};
static_assert(sizeof(FinishMessage) == 8 && sizeof(FinishMessage) <= transport::kInlineBytes &&
              std::is_trivially_copyable_v<FinishMessage>);

// A server answers with a notification. Its sequence is the worker's iteration, counted from 1, and
// its tag is one of these.
inline constexpr std::uint64_t kContinue = 0;
inline constexpr std::uint64_t kStop = 1;

// Slots per worker at a server. Two keep a link busy. With four, a worker is not delayed at once
// when the server processes a piece of another worker.
inline constexpr std::uint32_t kParameterDepth = 4;

struct ParameterRoles {
  ParameterRoles(const MethodOptions& options, int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      (rank < ranks - options.servers ? workers : servers).emplace_back(rank);
  }
  bool is_server(Rank rank) const { return rank >= servers.front(); }
  std::size_t index_of(Rank server) const { return server.index() - workers.size(); }

  std::vector<Rank> workers;
  std::vector<Rank> servers;
};

// The channels between workers and servers, as seen from `rank`.
inline transport::SlotOptions parameter_slots(const MethodOptions& options,
                                              const ParameterRoles& roles, Rank rank) {
  transport::SlotOptions slots;
  slots.name = options.name + "/gradients";
  (roles.is_server(rank) ? slots.in : slots.out) =
      roles.is_server(rank) ? roles.workers : roles.servers;
  const std::size_t longest = share_of(options.count, roles.servers.size(), 0).count;
  slots.slot_bytes = std::min(longest, options.piece_elements) * sizeof(float);
  slots.depth = kParameterDepth;
  return slots;
}

// The memory of a worker to which servers put the parameters.
struct ParametersOffer {
  transport::NotifyId first_cell{};  // one for each server's answers
  Bytes descriptor;

  Bytes encode() const {
    return ByteWriter().number(static_cast<std::uint32_t>(first_cell)).blob(descriptor).take();
  }
  static Result<ParametersOffer> decode(std::span<const std::byte> bytes) {
    ByteReader reader(bytes);
    ParametersOffer offer;
    offer.first_cell = transport::NotifyId(reader.number<std::uint32_t>());
    offer.descriptor = reader.bytes();
    if (!reader.at_end()) return Status(Code::kCorrupted, "a worker published a malformed address");
    return offer;
  }
};

// The key under which a worker publishes it.
inline std::string parameters_key(const MethodOptions& options, Rank worker) {
  return fmt::format("training/{}/parameters/{}", options.name, worker.value());
}

}  // namespace dunlin::training
