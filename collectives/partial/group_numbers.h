// GroupNumbers: the numbers that one rank may give to groups. They come in blocks, each of which is
// taken by one rank alone, in ascending order: whoever takes one publishes it at the bootstrap,
// which accepts a key once. So a rank that takes another's place numbers its groups above all that
// anybody has seen, without asking anybody; and of two ranks that take one another for dead, none
// gives a number away that the other gives, and the one that is to be succeeded finds out when its
// block is used up. Taking one costs a round trip to the bootstrap. Owner thread only.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/status.h"

namespace dunlin::collective::partial {

class GroupNumbers {
 public:
  // Thousands of groups a second are some hours; of a job there are 2^15 blocks.
  static constexpr std::uint64_t kBlock = std::uint64_t{1} << 24;

  // The first block that nobody has taken, from that of `seen` on, a number that is known to be
  // given away (0: none is). kResourceExhausted: all are taken.
  static Result<GroupNumbers> take(Bootstrap& bootstrap, std::string name, std::uint64_t seen);

  // At least 1.
  std::uint64_t first() const { return first_block_ == 0 ? 1 : first_block_ * kBlock; }
  // Behind the last one.
  std::uint64_t end() const { return end_block_ * kBlock; }
  // Takes another block once half of the last one is used up. kClosed: somebody has taken our
  // place.
  Status extend(std::uint64_t last_used);

 private:
  GroupNumbers(Bootstrap& bootstrap, std::string name, std::uint64_t block)
      : bootstrap_(&bootstrap), name_(std::move(name)), first_block_(block), end_block_(block) {}

  Status take_next();

  Bootstrap* bootstrap_;
  std::string name_;
  std::uint64_t first_block_;
  std::uint64_t end_block_;
};

}  // namespace dunlin::collective::partial
