// Within: notes in a flag that a thread is within a part of the code, which must not be entered
// again from inside. The flag gets its former value at the end of the scope, also if an exception
// ends it. Owner thread only.
#pragma once

#include <utility>

namespace dunlin {

class Within {
 public:
  explicit Within(bool& flag) : flag_(flag), was_within_(std::exchange(flag, true)) {}
  ~Within() { flag_ = was_within_; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

  // Whether this thread was within it already.
  bool was_within() const { return was_within_; }

 private:
  bool& flag_;
  const bool was_within_;
};

}  // namespace dunlin
