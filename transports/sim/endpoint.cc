#include "transports/sim/endpoint.h"

#include "transports/sim/lane.h"
#include "transports/sim/network.h"

namespace dunlin::transport::sim {

Endpoint::Endpoint(Network& network, Rank rank, NotifyBoard& board, PeerTable& peers,
                   Counters* counters)
    : network_(network), rank_(rank), board_(board), peers_(peers), counters_(counters) {
  network_.attach(*this);
}

Endpoint::~Endpoint() {
  progress();  // empties the list of operations that are done of those of closed lanes
  network_.detach(*this);
}

void Endpoint::enter(SimLane& lane) {
  lane.next_lane_ = lanes_;
  if (lanes_ != nullptr) lanes_->previous_lane_ = &lane;
  lanes_ = &lane;
}

void Endpoint::leave(SimLane& lane) {
  (lane.previous_lane_ == nullptr ? lanes_ : lane.previous_lane_->next_lane_) = lane.next_lane_;
  if (lane.next_lane_ != nullptr) lane.next_lane_->previous_lane_ = lane.previous_lane_;
}

void Endpoint::add_done(OperationId id) {
  OperationPool& operations = network_.operations();
  ++operations[id].references;
  operations[id].next_done = kNoOperation;
  (last_done_ == kNoOperation ? first_done_ : operations[last_done_].next_done) = id;
  last_done_ = id;
}

std::size_t Endpoint::progress() {
  OperationPool& operations = network_.operations();
  std::size_t completed = 0;
  while (first_done_ != kNoOperation) {
    const OperationId id = first_done_;
    first_done_ = operations[id].next_done;
    if (first_done_ == kNoOperation) last_done_ = kNoOperation;
    if (SimLane* const lane = operations[id].lane) {
      lane->settle(id, Status::ok());
      ++completed;
    }
    operations.drop_reference(id);
  }
  if (const std::uint64_t version = peers_.version(); version != seen_peers_) {
    seen_peers_ = version;
    for (SimLane* lane = lanes_; lane != nullptr; lane = lane->next_lane_) {
      completed += lane->fail_pending();
    }
  }
  return completed;
}

}  // namespace dunlin::transport::sim
