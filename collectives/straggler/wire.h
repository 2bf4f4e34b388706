// RingWire: the memory and the edges under a straggler-aware ring, and what is under way from
// there. Lanes may hold on to it: it outlives a ring that ends in the middle of an exchange. Owner
// thread only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/straggler/layout.h"
#include "collectives/straggler/tag.h"
#include "transports/channel/queue.h"
#include "transports/channel/slot_exchange.h"
#include "transports/fabric.h"

namespace dunlin::collective {

class RingWire final : public transport::Retired {
 public:
  struct Options {
    std::string name;
    Membership membership;
    std::size_t element_bytes = 1;
    std::uint32_t depth = 1;
  };
  static Result<std::unique_ptr<RingWire>> prepare(transport::Fabric& fabric, Options options,
                                                   const RingLayout& layout);

  // The vector.
  std::byte* data() const { return memory_->data(); }
  transport::SlotExchange& exchange() { return *exchange_; }

  // Whether a flow's memory may be written: it is not being sent, or is no more. An error: what was
  // sent from there got lost.
  Result<bool> is_free(std::size_t flow) const;
  // Sends a flow's memory, which has to be free.
  Status send(transport::SendQueue& queue, const RingTag& tag);
  // Nothing is under way.
  bool is_done() const override;
  // Once done: whether all went well.
  Status outcome() const;
  void reset();
  // The first flow that is under way; flows(): none.
  std::size_t first_under_way() const;

 private:
  std::unique_ptr<transport::LocalRegion> memory_;
  std::unique_ptr<transport::SlotExchange> exchange_;
  std::vector<transport::LocalSlice> slices_;             // of the flows
  std::unique_ptr<transport::Completion[]> completions_;  // of what was last sent from there
  std::vector<bool> is_posted_;
};

}  // namespace dunlin::collective
