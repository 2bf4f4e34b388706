// RingLayout: how the vector of a straggler-aware ring is cut, and which rank has which place on
// which segment's path. All ranks make the same one, but for `self`.
//
// Chunk c belongs to the path that starts at member c. A flow is a segment of a chunk; flows are
// numbered by chunk, then segment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dunlin::collective {

class RingLayout {
 public:
  RingLayout() = default;
  // `count` elements around `members` ranks, in segments of `most` elements at the most.
  RingLayout(std::uint32_t members, std::uint32_t self, std::size_t count, std::size_t most)
      : members_(members), self_(self), count_(count) {
    const std::size_t longest_chunk = (count + members - 1) / members;
    segments_ = std::max<std::size_t>(1, (longest_chunk + most - 1) / most);
  }

  std::uint32_t members() const { return members_; }
  std::uint32_t self() const { return self_; }
  std::size_t segments() const { return segments_; }  // per chunk
  std::size_t flows() const { return members_ * segments_; }
  std::uint32_t chunk_of(std::size_t flow) const {
    return static_cast<std::uint32_t>(flow / segments_);
  }
  // Where the path of the flow meets us.
  std::uint32_t position_of(std::size_t flow) const {
    return (self_ + members_ - chunk_of(flow)) % members_;
  }
  // Elements: even parts of even parts.
  std::size_t begin_of(std::size_t flow) const {
    const std::size_t chunk = flow / segments_;
    const std::size_t begin = chunk * count_ / members_;
    const std::size_t length = (chunk + 1) * count_ / members_ - begin;
    return begin + flow % segments_ * length / segments_;
  }
  std::size_t end_of(std::size_t flow) const {
    return flow + 1 == flows() ? count_ : begin_of(flow + 1);
  }
  // The flow that comes `turn`-th, as a predecessor sends that nobody keeps waiting: its own chunk
  // first, then what it gets. Ours aren't among them, those that we own are the last of them.
  std::size_t incoming(std::size_t turn) const {
    const std::size_t chunk = (self_ + members_ - 1 - turn / segments_) % members_;
    return chunk * segments_ + turn % segments_;
  }
  std::size_t turns() const { return flows() - segments_; }

 private:
  std::uint32_t members_ = 1;
  std::uint32_t self_ = 0;
  std::size_t count_ = 0;
  std::size_t segments_ = 1;
};

}  // namespace dunlin::collective
