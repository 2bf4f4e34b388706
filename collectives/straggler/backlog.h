// RingBacklog: the messages that are due on one edge of a straggler-aware ring, oldest first. Owner
// thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "collectives/straggler/tag.h"

namespace dunlin::collective {

class RingBacklog {
 public:
  // Allocates nothing later unless more than `room` messages are due at once.
  explicit RingBacklog(std::size_t room) { tags_.reserve(2 * room); }

  bool is_empty() const { return next_ == tags_.size(); }
  // Whether a message with elements of the vector is due, and not only notices.
  bool has_data() const {
    return std::any_of(begin(), tags_.end(),
                       [](const RingTag& tag) { return tag.kind != RingTag::Kind::kSkipped; });
  }
  const RingTag& front() const { return tags_[next_]; }
  void push(const RingTag& tag) {
    if (tags_.size() == tags_.capacity() && next_ > 0) {
      tags_.erase(tags_.begin(), begin());
      next_ = 0;
    }
    tags_.push_back(tag);
  }
  void pop() {
    if (++next_ == tags_.size()) clear();
  }
  void clear() {
    tags_.clear();
    next_ = 0;
  }

 private:
  std::vector<RingTag>::const_iterator begin() const {
    return tags_.begin() + static_cast<std::ptrdiff_t>(next_);
  }

  std::vector<RingTag> tags_;
  std::size_t next_ = 0;  // those before it have been sent
};

}  // namespace dunlin::collective
