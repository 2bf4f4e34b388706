// The messages of a connection between endpoints: the parts in which they travel, and the contents
// of those that the connection itself sends.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/bytes.h"
#include "runtime/status.h"

namespace dunlin::transport::endpoint {

enum class MessageKind : std::uint8_t { kGreeting, kProgram, kImport, kImported };

// The tag of a part of a message.
struct PartTag {
  MessageKind kind{};
  bool has_more = false;  // further parts of the message follow

  std::uint64_t encode() const;
  static std::optional<PartTag> decode(std::uint64_t tag);
};

struct WholeMessage {
  MessageKind kind{};
  Bytes bytes;
};

// Makes messages of their parts.
class Assembly {
 public:
  // `largest_part`: the size of a slot.
  Assembly(std::size_t largest_part, std::size_t largest_message)
      : largest_part_(largest_part), largest_message_(largest_message) {}

  // Returns the message that the part completes, if it does. kCorrupted for a part that no sender
  // of this version makes; nothing may be added then.
  Result<std::optional<WholeMessage>> add(std::uint64_t tag, std::span<const std::byte> part);

 private:
  const std::size_t largest_part_;
  const std::size_t largest_message_;
  std::optional<WholeMessage> arriving_;
};

// kImport: asks for the descriptor of memory. Its number is a MemoryId.
struct ImportRequest {
  std::uint64_t id = 0;

  Bytes encode() const;
  static Result<ImportRequest> decode(std::span<const std::byte> bytes);
};

// kImported: the answer.
struct ImportAnswer {
  std::uint64_t id = 0;
  Code code = Code::kOk;
  std::string why;   // of an error
  Bytes descriptor;  // of the memory, without an error

  Bytes encode() const;
  static Result<ImportAnswer> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::transport::endpoint
