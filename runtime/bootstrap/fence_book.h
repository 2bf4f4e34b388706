// FenceBook: the coordinator's side of fences (fences.h).
//
// A rank asks for a fence around a rank that is gone. The book waits until the ledger counts that
// rank as gone, asks each of the given ranks once to revoke its access, and answers when all of
// them that are present have confirmed. The JobLedger owns it. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "runtime/bootstrap/wire.h"

namespace dunlin::bootstrap {

class FenceBook {
 public:
  using Send = std::function<void(Rank to, const Message& message)>;
  using IsPresent = std::function<bool(Rank)>;
  FenceBook(int size, Send send, IsPresent is_present);

  // Takes a kFence message of `from`. Its `subject` is the rank to fence, its `ranks` are those
  // whose memory is protected, and its `number` identifies the fence. Returns kCorrupted if the job
  // does not have one of the ranks, or if `from` has asked for more than it can wait for.
  Status ask(Rank from, const Message& message);
  // Takes a kRevoked message of `from`, which has revoked the access of the message's `subject`.
  // Returns kCorrupted if it was not asked to.
  Status confirm(Rank from, const Message& message);
  // To be called when a rank is gone. The fences no longer wait for its confirmation, those around
  // it go ahead, and those that it has asked for are dropped.
  void note_gone();

 private:
  struct Request {
    Rank from;
    std::uint64_t number = 0;
    std::vector<Rank> owners;
  };
  struct Fence {
    std::set<Rank> asked;
    std::set<Rank> confirmed;
    std::vector<Request> open;
  };
  void settle(Rank gone, Fence& fence);
  // How much the open requests of a rank take, in ranks.
  std::size_t open_of(Rank from) const;
  bool exists(Rank rank) const { return rank.value() >= 0 && rank.value() < size_; }

  const int size_;
  Send send_;
  IsPresent is_present_;
  std::map<Rank, Fence> fences_;  // by the rank that is gone
};

}  // namespace dunlin::bootstrap
