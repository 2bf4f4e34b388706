#include "collectives/straggler/wire.h"

#include <algorithm>

namespace dunlin::collective {

Result<std::unique_ptr<RingWire>> RingWire::prepare(transport::Fabric& fabric, Options options,
                                                    const RingLayout& layout) {
  auto wire = std::make_unique<RingWire>();
  const std::size_t flows = layout.flows();
  const std::size_t bytes = layout.end_of(flows - 1) * options.element_bytes;
  DUNLIN_ASSIGN(wire->memory_, fabric.allocate(std::max(bytes, transport::kCacheLine)));
  std::size_t longest = 0;
  for (std::size_t flow = 0; flow < flows; ++flow) {
    const std::size_t begin = layout.begin_of(flow) * options.element_bytes;
    const std::size_t size = layout.end_of(flow) * options.element_bytes - begin;
    DUNLIN_ASSIGN(const auto slice, wire->memory_->slice(begin, size));
    wire->slices_.push_back(slice);
    longest = std::max(longest, size);
  }
  wire->completions_ = std::make_unique<transport::Completion[]>(flows);
  wire->is_posted_.resize(flows);

  transport::SlotOptions slots{
      std::move(options.name), options.membership.epoch, {}, {}, longest, options.depth};
  // Two ahead and two behind; in a ring of two that would be the rank itself.
  const std::uint32_t members = layout.members();
  for (std::uint32_t distance = 1; distance <= std::min(members - 1, 2u); ++distance) {
    slots.in.push_back(options.membership.members[(layout.self() + members - distance) % members]);
    slots.out.push_back(options.membership.members[(layout.self() + distance) % members]);
  }
  DUNLIN_ASSIGN(wire->exchange_, transport::SlotExchange::prepare(fabric, std::move(slots)));
  return wire;
}

Result<bool> RingWire::is_free(std::size_t flow) const {
  if (!is_posted_[flow]) return true;
  if (!completions_[flow].is_done()) return false;
  DUNLIN_TRY(completions_[flow].status());
  return true;
}

Status RingWire::send(transport::SendQueue& queue, const RingTag& tag) {
  completions_[tag.flow].reset();
  Status status = queue.try_send(slices_[tag.flow], tag.encode(), &completions_[tag.flow]);
  is_posted_[tag.flow] = status.is_ok();
  return status;
}

bool RingWire::is_done() const {
  return first_under_way() == slices_.size();
}

std::size_t RingWire::first_under_way() const {
  std::size_t flow = 0;
  while (flow < slices_.size() && (!is_posted_[flow] || completions_[flow].is_done())) ++flow;
  return flow;
}

Status RingWire::outcome() const {
  for (std::size_t flow = 0; flow < slices_.size(); ++flow) {
    if (is_posted_[flow]) DUNLIN_TRY(completions_[flow].status());
  }
  return Status::ok();
}

void RingWire::reset() {
  std::fill(is_posted_.begin(), is_posted_.end(), false);
}

}  // namespace dunlin::collective
