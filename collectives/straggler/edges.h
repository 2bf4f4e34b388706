// RingEdges: the memory of a straggler-aware ring, its edges to the neighbors, and the sends that
// are in progress from that memory. Lanes may still access it after the ring is gone: a ring that
// ends in the middle of an all-reduce hands it to Fabric::keep_until_done(). Owner thread only.
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

class RingEdges final : public transport::KeptUntilDone {
 public:
  struct Options {
    std::string name;
    Membership membership;
    std::size_t element_bytes = 1;
    std::uint32_t depth = 1;
    bool is_average = false;  // of floating-point elements
  };
  static Result<std::unique_ptr<RingEdges>> prepare(transport::Fabric& fabric, Options options,
                                                    const RingLayout& layout);

  // The memory of the vector.
  std::byte* data() const { return memory_->data(); }
  const std::shared_ptr<MemoryRegion>& owner_of_data() const { return memory_->memory(); }
  transport::SlotExchange& exchange() { return *exchange_; }

  // Whether a flow's memory may be written, since no lane reads it. An error means that the last
  // message from there was lost.
  Result<bool> is_free(std::size_t flow) const;
  // Sends a flow's memory, which has to be free; see is_free().
  Status send(transport::SendQueue& queue, const RingTag& tag);
  // No send is in progress.
  bool is_done() const override;
  // Once is_done(): the first error of a send, if there was one.
  Status outcome() const;
  void reset();
  // The first flow whose send is in progress; RingLayout::flows() if there is none.
  std::size_t first_in_progress() const;

 private:
  std::unique_ptr<transport::LocalRegion> memory_;
  std::unique_ptr<transport::SlotExchange> exchange_;
  std::vector<transport::LocalSlice> slices_;             // by flow
  std::unique_ptr<transport::Completion[]> completions_;  // of each flow's last send
  std::vector<bool> is_posted_;
};

}  // namespace dunlin::collective
