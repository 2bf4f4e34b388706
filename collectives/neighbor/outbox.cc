#include "collectives/neighbor/outbox.h"

namespace dunlin::collective::neighbor {

bool Outbox::has_room(const NeighborOperation& operation) const {
  return bytes_ + operation.first_bytes() <= limit_;
}

void Outbox::add(NeighborOperation& operation, Delivery& delivery) {
  waiting_.push_back({&operation, &delivery});
  bytes_ += operation.first_bytes();
}

void Outbox::remove(const NeighborOperation& operation) {
  bytes_ -= operation.first_bytes() * std::erase_if(waiting_, [&](const Waiting& each) {
              return each.operation == &operation;
            });
}

std::size_t Outbox::fill() {
  frame_.clear();
  std::size_t taken = 0;
  for (; taken < waiting_.size(); ++taken) {
    const auto [operation, delivery] = waiting_[taken];
    if (delivery->is_over) continue;  // the neighbor is gone
    if (frame_.size() > 0 && frame_.bytes() + operation->first_bytes() > limit_) break;
    frame_.add(operation->first(*delivery));
  }
  return taken;
}

void Outbox::send(Ring& ring, NeighborTraffic& traffic) {
  while (!waiting_.empty()) {
    std::size_t taken = fill();
    Status status;
    if (frame_.size() > 0) {
      status = ring.send(0, frame_.pieces());
      if (status.is_busy()) return;
      ++traffic.messages;
      traffic.parts += frame_.size();
    }
    for (; taken > 0; --taken) {
      const auto [operation, delivery] = waiting_.front();
      waiting_.pop_front();
      bytes_ -= operation->first_bytes();
      if (!delivery->is_over) operation->first_sent(*delivery, status);
    }
  }
}

}  // namespace dunlin::collective::neighbor
