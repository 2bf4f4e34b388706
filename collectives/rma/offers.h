// What the ranks of a window on GPUs, and the members of a distributed mutex, publish for one
// another through the bootstrap.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/rank.h"
#include "runtime/status.h"
#include "transports/notification.h"
#include "transports/remote_access.h"

namespace dunlin::collective {

struct GpuWindowOffer {
  std::uint64_t tensor_bytes = 0;
  bool is_readable = false;
  std::string gpu;  // its PCI bus id; empty: not known
  Bytes memory;     // the descriptor of the tensors; empty: peers cannot open it
  Bytes words;      // the descriptor
  std::vector<Rank> in;

  Bytes encode() const;
  static Result<GpuWindowOffer> decode(std::span<const std::byte> bytes);
};

struct MutexOffer {
  std::uint32_t members = 0;
  Rank owner_rank;
  transport::NotifyId first_cell{};
  bool wants_manager = false;
  std::string transport;                        // with which it reaches the owner rank
  std::optional<transport::AtomicScope> scope;  // of its atomics there; nullopt: it has none
  std::string host;
  Bytes words;  // the owner rank's descriptor of the words

  Bytes encode() const;
  static Result<MutexOffer> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::collective
