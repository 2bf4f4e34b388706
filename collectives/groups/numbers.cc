#include "collectives/groups/numbers.h"

#include <fmt/format.h>

#include "collectives/partial/wire.h"

namespace dunlin::collective::groups {

Result<GroupNumbers> GroupNumbers::take(Bootstrap& bootstrap, std::string name,
                                        std::uint64_t seen) {
  for (std::uint64_t block = seen / kBlock;; ++block) {
    GroupNumbers numbers(bootstrap, name, block);
    Status status = numbers.take_next();
    if (status.is_ok()) return numbers;
    if (status.code() != Code::kAlreadyExists) return status;
  }
}

Status GroupNumbers::take_next() {
  if (end_block_ >= partial::kLastNumber / kBlock) {
    return {Code::kResourceExhausted,
            fmt::format("'{}': all {} numbers of groups are taken", name_, partial::kLastNumber)};
  }
  DUNLIN_TRY(bootstrap_->publish(fmt::format("groups/{}/numbers/{}", name_, end_block_),
                                 ByteWriter().number(bootstrap_->rank().value()).take()));
  ++end_block_;
  return Status::ok();
}

Status GroupNumbers::extend(std::uint64_t last_used) {
  if (last_used + kBlock / 2 < end()) return Status::ok();
  Status status = take_next();
  if (status.code() != Code::kAlreadyExists) return status;
  return {Code::kClosed, fmt::format("'{}': other ranks took this one for dead, and get their "
                                     "groups from another one",
                                     name_)};
}

}  // namespace dunlin::collective::groups
