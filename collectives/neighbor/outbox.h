// Outbox: what calls have to say first to one neighbour, until it is sent: the data of small calls,
// and the announcements of others (wire.h). What lies here at the same time, of whatever calls,
// leaves in messages of several parts (frame.h). Nobody is asked: the receiver tells the parts
// apart by the name and number of their calls.
//
// Owner thread only. Borrows the calls, which remove() themselves before they end.
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
  // `limit`: bytes of a message of several parts, headers included.
  explicit Outbox(std::size_t limit) : limit_(limit) {}

  bool is_empty() const { return waiting_.empty(); }
  // Whether what the call has to say fits into one message with all that waits.
  bool has_room(const Operation& operation) const;
  void add(Operation& operation, Delivery& delivery);
  void remove(const Operation& operation);
  // Sends what waits, in the order in which it came, as far as there is room.
  void send(Ring& ring, NeighborTraffic& traffic);

 private:
  struct Waiting {
    Operation* operation;
    Delivery* delivery;
  };

  // Puts the next message together; how many of those that wait it takes care of.
  std::size_t fill();

  std::size_t limit_;
  std::deque<Waiting> waiting_;
  std::size_t bytes_ = 0;  // of the parts of those that wait
  Frame frame_;
};

}  // namespace dunlin::collective::neighbor
