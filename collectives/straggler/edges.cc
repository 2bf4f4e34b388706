#include "collectives/straggler/edges.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective {

Result<std::unique_ptr<RingEdges>> RingEdges::prepare(transport::Fabric& fabric, Options options,
                                                      const RingLayout& layout) {
  auto edges = std::make_unique<RingEdges>();
  const std::size_t flows = layout.flows();
  const std::size_t bytes = layout.end_of(flows - 1) * options.element_bytes;
  DUNLIN_ASSIGN(edges->memory_, fabric.allocate(std::max(bytes, transport::kCacheLine)));
  std::size_t longest = 0;
  for (std::size_t flow = 0; flow < flows; ++flow) {
    const std::size_t begin = layout.begin_of(flow) * options.element_bytes;
    const std::size_t size = layout.end_of(flow) * options.element_bytes - begin;
    DUNLIN_ASSIGN(const auto slice, edges->memory_->slice(begin, size));
    edges->slices_.push_back(slice);
    longest = std::max(longest, size);
  }
  edges->completions_ = std::make_unique<transport::Completion[]>(flows);
  edges->is_posted_.resize(flows);

  transport::SlotOptions slots{
      std::move(options.name), options.membership.epoch, {}, {}, longest, options.depth};
  slots.terms =
      fmt::format("{} of float{} x {} in {} segments", options.is_average ? "average" : "sum",
                  8 * options.element_bytes, layout.end_of(flows - 1), flows);
  // Two neighbors in each direction. In a ring of two the second one would be this rank itself.
  const std::uint32_t members = layout.members();
  for (std::uint32_t distance = 1; distance <= std::min(members - 1, 2u); ++distance) {
    slots.in.push_back(options.membership.members[(layout.self() + members - distance) % members]);
    slots.out.push_back(options.membership.members[(layout.self() + distance) % members]);
  }
  DUNLIN_ASSIGN(edges->exchange_, transport::SlotExchange::prepare(fabric, std::move(slots)));
  return edges;
}

Result<bool> RingEdges::is_free(std::size_t flow) const {
  if (!is_posted_[flow]) return true;
  if (!completions_[flow].is_done()) return false;
  DUNLIN_TRY(completions_[flow].status());
  return true;
}

Status RingEdges::send(transport::SendQueue& queue, const RingTag& tag) {
  completions_[tag.flow].reset();
  Status status = queue.try_send(slices_[tag.flow], tag.encode(), &completions_[tag.flow]);
  is_posted_[tag.flow] = status.is_ok();
  return status;
}

bool RingEdges::is_done() const {
  return first_in_progress() == slices_.size();
}

std::size_t RingEdges::first_in_progress() const {
  std::size_t flow = 0;
  while (flow < slices_.size() && (!is_posted_[flow] || completions_[flow].is_done())) ++flow;
  return flow;
}

Status RingEdges::outcome() const {
  for (std::size_t flow = 0; flow < slices_.size(); ++flow) {
    if (is_posted_[flow]) DUNLIN_TRY(completions_[flow].status());
  }
  return Status::ok();
}

void RingEdges::reset() {
  std::fill(is_posted_.begin(), is_posted_.end(), false);
}

}  // namespace dunlin::collective
