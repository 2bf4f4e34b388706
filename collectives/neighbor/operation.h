// Operation: one call under way, with what goes out to each destination and what comes from each
// source (neighbor_exchange.h). It moves bytes between pairs and the caller's memory; matching
// calls with one another is the exchange's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "collectives/data_type.h"
#include "collectives/neighbor/frame.h"
#include "collectives/neighbor/ring.h"
#include "collectives/neighbor/wire.h"

namespace dunlin::collective::neighbor {

// What goes to one destination.
struct Delivery {
  Pair* pair = nullptr;
  double weight = 1;
  std::uint32_t sequence = 0;
  std::uint32_t token = 0;  // the destination's; 0: it has not asked for the data yet
  bool is_announced = false;
  std::size_t sent = 0;  // bytes
  bool is_over = false;
};

// Bytes that came from a source: in its slot still, or moved out of it.
struct Piece {
  std::span<const std::byte> bytes;
  Ring* ring = nullptr;        // whose slot they are in; null: in `moved`
  std::uint64_t sequence = 0;  // of their message there
  Bytes moved;
};

// What comes from one source.
struct Intake {
  Pair* pair = nullptr;
  double weight = 1;  // ours; times the source's, once its first message has come
  std::uint32_t sequence = 0;
  std::uint32_t token = 0;  // 0: there are no chunks to ask for, as far as is known
  bool has_asked = false;
  std::size_t element = 1;   // bytes
  std::size_t expected = 0;  // bytes, before they are announced; of what is gathered: any
  bool is_known = false;     // what comes: size and the source's weight
  std::size_t bytes = 0;     // that come in all
  std::size_t arrived = 0;   // bytes
  std::size_t taken = 0;     // bytes that were averaged in, or stored
  std::deque<Piece> pieces;  // the bytes in between, in order

  bool has_arrived() const { return is_known && arrived == bytes; }
  // Whether a chunk of so many bytes can be the next, as far as is known.
  bool fits(std::size_t size) const {
    return token != 0 && size != 0 && size % element == 0 && size <= limit() - arrived;
  }
  std::size_t limit() const { return is_known ? bytes : expected; }
};

class Operation {
 public:
  std::string name;
  std::uint64_t key = 0;
  DataType type = DataType::kFloat32;
  bool is_reduction = true;
  std::uint32_t layout = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t bytes = 0;  // of the input
  double self_weight = 1;
  std::vector<Delivery> deliveries;
  std::vector<Intake> intakes;
  std::vector<Bytes>* gathered = nullptr;
  // Not ok: nothing more is taken in. What others wait for is sent all the same.
  Status failure;

  // Its data travel behind their header.
  bool is_small() const { return bytes <= kSmall; }
  // What a destination gets first: the data where they are small, else what announces them.
  Part first(const Delivery& delivery) const;
  // What that takes in a message.
  std::size_t first_bytes() const { return part_bytes(is_small() ? bytes : 0); }
  // It was sent, or can't be.
  void first_sent(Delivery& delivery, const Status& status);
  // Sends of what was asked for what can be sent now; true once nothing is left.
  bool send_chunks(Delivery& delivery);
  // The first failure is the call's. Gives all slots back.
  void fail(Status why);
  // Takes note of what the source is about to send.
  Status accept(Intake& intake, const Header& header);
  // Averages, or stores, what has come from all sources.
  void take();
  // Moves what it has of the ring's oldest message out of its slot.
  void make_room(Ring& ring);
  bool is_over() const;

 private:
  Header header(const Delivery& delivery, Kind kind) const;
  Status send_on(Delivery& delivery);
  // True if nothing is left to be sent.
  bool settle(Delivery& delivery, Status status);
  void average(std::size_t offset, std::size_t size);
  void store(std::size_t source);
  void consume(Intake& intake, std::size_t size);

  std::size_t averaged_ = 0;  // bytes of the output that are done
  std::vector<const std::byte*> inputs_;
  std::vector<double> weights_;
};

}  // namespace dunlin::collective::neighbor
