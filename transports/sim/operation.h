// Operation: one posted put, get, notification or flush on its way, and the pool in which they
// live.
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

// A registered region, as its descriptor names it. A number is used again, with another generation.
struct RegionId {
  std::uint32_t number = 0;
  std::uint32_t generation = 0;  // 0: none
};

struct Operation {
  Completion* completion = nullptr;
  SimLane* lane = nullptr;  // null: the lane is closed, nothing of this happens any more
  const std::byte* source = nullptr;
  std::size_t size = 0;
  std::size_t offset = 0;  // in the target, which is what a get reads from
  std::size_t wire_bytes = 0;
  RegionId target;
  NotifyId cell{};
  std::uint32_t length = 0;
  std::uint64_t sequence = 0;
  std::uint64_t tag = 0;
  std::byte inline_data[kInlineBytes];
  std::uint8_t inline_size = 0;
  bool is_put = false;        // moves bytes, of a get as well
  std::byte* sink = nullptr;  // of a get, whose bytes go there
  bool has_notification = false;
  bool is_local_flush = false;   // done when all that is before it in its lane is
  bool has_answer = false;       // done only when the sender has heard of it
  bool is_done = false;          // only its completion has to fire
  bool is_unregistered = false;  // its target: nothing was written
  std::uint16_t pieces = 0;      // hostile: into so many the payload is torn
  std::uint16_t parts_left = 0;  // hostile: pieces and notification that have not landed
  // Of events, of the lane's list and of the endpoint's; free when nobody refers to it.
  std::uint32_t references = 0;
  OperationId previous = kNoOperation;  // in the lane's list
  OperationId next = kNoOperation;
  OperationId next_done = kNoOperation;  // in the endpoint's list
};

// Operations by number; those that are free are handed out again. References hold until the next
// take().
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
