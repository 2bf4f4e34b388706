// StepBoundary: a member's side of the agreement between which steps the members change on purpose
// (step_book.h).
//
// The thread that runs the steps calls before(). Another one, which hears the coordinator, calls
// ask(), tell() and reset(); it answers for a program that is in a step, so that a neighbor which
// waits for that step's model keeps nobody from answering. The owner guards all calls by a mutex.
#pragma once

#include <cstdint>
#include <optional>

namespace dunlin::bootstrap {

class StepBoundary {
 public:
  enum class Outcome : std::uint8_t {
    kGoOn,    // the step begins
    kWait,    // not before the boundary is known
    kChange,  // the members change before this step
  };

  // No step comes after this one: the program is about to end. If the members are not changing yet
  // by then, they do not change any more.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // The program is about to begin `step`. If `promise` is set afterwards, the coordinator is to be
  // told of it.
  Outcome before(std::uint64_t step, std::optional<std::uint64_t>& promise);
  // The coordinator asks. Returns the answer, unless the program has not begun a step so far; then
  // before() has it.
  std::optional<std::uint64_t> ask();
  // The coordinator tells the boundary.
  void tell(std::uint64_t boundary) { boundary_ = boundary; }
  // The members have changed.
  void reset() { *this = {}; }

  // Whether all members have answered, so that they change at some step.
  bool is_change_due() const { return boundary_ && *boundary_ != kNever; }

 private:
  bool is_asked_ = false;
  std::optional<std::uint64_t> step_;     // the last one that has begun
  std::optional<std::uint64_t> promise_;  // not begun before the boundary is known
  std::optional<std::uint64_t> boundary_;
};

}  // namespace dunlin::bootstrap
