// Operation: one put, get, notification or flush in progress, and the pool that operations live in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/rank.h"
#include "transports/lane.h"

namespace dunlin::transport::sim {

class SimLane;

using OperationId = std::uint32_t;
inline constexpr OperationId kNoOperation = ~OperationId{0};

// Identifies a registered region. A number is reused with another generation.
struct RegionId {
  std::uint32_t number = 0;
  std::uint32_t generation = 0;  // 0: none
};

struct Operation {
  Completion* completion = nullptr;
  SimLane* lane = nullptr;  // null: the lane is closed, and nothing more happens
  const std::byte* source = nullptr;
  std::size_t size = 0;
  std::size_t offset = 0;  // in the target region; a get reads from there
  std::size_t wire_bytes = 0;
  RegionId target;
  NotifyId cell{};
  std::uint32_t length = 0;
  std::uint64_t sequence = 0;
  std::uint64_t tag = 0;
  std::byte inline_data[kInlineBytes];
  std::uint8_t inline_size = 0;
  bool is_put = false;        // moves bytes; true for a get, too
  std::byte* sink = nullptr;  // where the bytes of a get go
  bool has_notification = false;
  bool is_local_flush = false;   // done when all operations before it in its lane are
  bool has_answer = false;       // done only when an answer is back at the sender
  bool is_done = false;          // only its completion remains to be fired
  bool is_deregistered = false;  // the target region was; nothing was written
  std::uint16_t pieces = 0;      // hostile: the number of pieces that the payload lands in
  std::uint16_t parts_left = 0;  // hostile: pieces and notification that have not landed
  // References by events, the lane's list and the endpoint's list. Without any, the entry is free.
  std::uint32_t references = 0;
  OperationId previous = kNoOperation;  // in the lane's list
  OperationId next = kNoOperation;
  OperationId next_done = kNoOperation;  // in the endpoint's list
};

// Operations by number. Free entries are reused. A C++ reference is valid until the next take().
class OperationPool {
 public:
  Operation& operator[](OperationId id) { return operations_[id]; }
  OperationId take() {
    if (first_free_ == kNoOperation) {
      operations_.emplace_back();
      return static_cast<OperationId>(operations_.size() - 1);
    }
    const OperationId id = first_free_;
    first_free_ = operations_[id].next;
    operations_[id] = Operation();
    return id;
  }
  void drop_reference(OperationId id) {
    if (--operations_[id].references != 0) return;
    operations_[id].next = first_free_;
    first_free_ = id;
  }

 private:
  std::vector<Operation> operations_;
  OperationId first_free_ = kNoOperation;
};

}  // namespace dunlin::transport::sim
