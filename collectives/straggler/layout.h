// RingLayout: how the vector of a straggler-aware ring is cut, and which position each rank has on
// the path of each segment. All ranks compute the same layout, except for `self`.
//
// The path of chunk c starts at member c. A flow is a segment of a chunk. Flows are numbered by
// chunk, then by segment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dunlin::collective {

class RingLayout {
 public:
  RingLayout() = default;
  // Cuts `count` elements among `members` ranks, into segments of at most `most` elements.
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
  // This rank's position on the path of the flow.
  std::uint32_t position_of(std::size_t flow) const {
    return (self_ + members_ - chunk_of(flow)) % members_;
  }
  // The flow's range of elements. Chunks are even parts of the vector, segments even parts of
  // chunks.
  std::size_t begin_of(std::size_t flow) const {
    const std::size_t chunk = flow / segments_;
    const std::size_t begin = chunk * count_ / members_;
    const std::size_t length = (chunk + 1) * count_ / members_ - begin;
    return begin + flow % segments_ * length / segments_;
  }
  std::size_t end_of(std::size_t flow) const {
    return flow + 1 == flows() ? count_ : begin_of(flow + 1);
  }
  // The flow that arrives as the `turn`-th from a predecessor that never waits: its own chunk
  // first, then the chunks that it receives. This rank's own chunk is not among them. The flows
  // that this rank owns come last.
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
