// Outbox: the first parts that calls have for one neighbor, until they are sent: the data of small
// calls, and the announcements of others (wire.h). Parts that wait at the same time leave together,
// in messages of several parts (frame.h), whichever calls they are of. The receiver knows the parts
// by the name and number of their calls, so nothing is negotiated.
//
// Owner thread only. Refers to the calls; remove() has to be called before one ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "collectives/neighbor/call.h"
#include "collectives/neighbor/frame.h"
#include "collectives/neighbor/operation.h"

namespace dunlin::collective::neighbor {

class Outbox {
 public:
  // `limit` is the longest message of several parts in bytes, headers included.
  explicit Outbox(std::size_t limit) : limit_(limit) {}

  bool is_empty() const { return waiting_.empty(); }
  // Whether the call's first part fits into one message with all that wait.
  bool has_room(const NeighborOperation& operation) const;
  void add(NeighborOperation& operation, Delivery& delivery);
  void remove(const NeighborOperation& operation);
  // Sends the waiting parts in their order, as far as there is room.
  void send(Ring& ring, NeighborTraffic& traffic);

 private:
  struct Waiting {
    NeighborOperation* operation;
    Delivery* delivery;
  };

  // Composes the next message. Returns how many of the waiting parts it covers.
  std::size_t fill();

  std::size_t limit_;
  std::deque<Waiting> waiting_;
  std::size_t bytes_ = 0;  // size of the waiting parts
  Frame frame_;
};

}  // namespace dunlin::collective::neighbor
