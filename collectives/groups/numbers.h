// GroupNumbers: the numbers that one rank may give to groups. They come in blocks, each of which is
// taken by one rank alone, in ascending order. A rank takes a block by publishing it at the
// bootstrap, which accepts a key once.
//
// So a rank that succeeds another master numbers its groups above all numbers that were ever used,
// without asking any rank. If two ranks take each other for dead, they never use the same number,
// and the rank that was succeeded finds out when its block is used up. Taking a block is a round
// trip to the bootstrap. Owner thread only.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/status.h"

namespace dunlin::collective::groups {

class GroupNumbers {
 public:
  // Lasts for some hours at thousands of groups per second. A job has 2^15 blocks.
  static constexpr std::uint64_t kBlock = std::uint64_t{1} << 24;

  // Takes the first free block, from the one of `seen` on. `seen` is a number that is known to be
  // used, or 0. kResourceExhausted: all blocks are taken.
  static Result<GroupNumbers> take(Bootstrap& bootstrap, std::string name, std::uint64_t seen);

  // The first number, at least 1.
  std::uint64_t first() const { return first_block_ == 0 ? 1 : first_block_ * kBlock; }
  // One past the last number.
  std::uint64_t end() const { return end_block_ * kBlock; }
  // Takes another block once half of the last one is used up. kClosed: another rank has succeeded
  // this one.
  Status extend(std::uint64_t last_used);
  // Whether one of the next few calls of extend() takes another block.
  bool is_extended_soon(std::uint64_t last_used) const {
    return last_used + kBlock / 2 + kBlock / 256 >= end();
  }

 private:
  GroupNumbers(Bootstrap& bootstrap, std::string name, std::uint64_t block)
      : bootstrap_(&bootstrap), name_(std::move(name)), first_block_(block), end_block_(block) {}

  Status take_next();

  Bootstrap* bootstrap_;
  std::string name_;
  std::uint64_t first_block_;
  std::uint64_t end_block_;
};

}  // namespace dunlin::collective::groups
