// NeighborOperation: one call in progress (neighbor_exchange.h), with its delivery to each
// destination and its intake from each source. It moves bytes between pairs and the caller's
// memory. The router matches calls with one another.
//
// Data in GPU memory always travel in chunks. The operation starts copies and averages, which
// read and write the caller's memory later, in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "collectives/kernels/data_type.h"
#include "collectives/neighbor/call.h"
#include "collectives/neighbor/frame.h"
#include "collectives/neighbor/ring.h"
#include "collectives/neighbor/wire.h"
#include "runtime/clock.h"

namespace dunlin::collective::neighbor {

// The data for one destination.
struct Delivery {
  Pair* pair = nullptr;
  double weight = 1;
  std::uint32_t sequence = 0;
  std::uint32_t token = 0;  // chosen by the destination; 0: it has not asked for the data yet
  bool is_announced = false;
  std::size_t sent = 0;        // bytes that the ring has taken
  std::uint64_t messages = 0;  // of the ring's chunks when it had taken all
  bool is_over = false;
  bool has_failed = false;  // this rank could not send the data; the destination is to hear of it
};

// Bytes that have arrived from a source, in their slot or moved out of it.
struct Piece {
  std::span<const std::byte> bytes;
  Ring* ring = nullptr;        // the ring whose slot they are in; null: they are in `moved`
  std::uint64_t sequence = 0;  // of their message in the ring
  Bytes moved;
  std::shared_ptr<MemoryRegion> moved_on_gpu;
};

// The data from one source.
struct Intake {
  Pair* pair = nullptr;
  double weight = 1;  // this rank's; times the source's once its first message has arrived
  std::uint32_t sequence = 0;
  std::uint32_t token = 0;  // 0: no chunks to ask for, as far as is known
  bool has_asked = false;
  bool is_heard = false;       // anything of it has arrived
  bool is_declined = false;    // the call has failed, and the source was told
  std::size_t element = 1;     // bytes
  std::size_t expected = 0;    // bytes, before they are announced; for a gather: any number
  bool is_given_back = false;  // the call behind has got its number
  bool is_lost = false;        // the source is dead, and the call goes on without what is missing
  bool is_known = false;       // the size and the source's weight are known
  std::size_t bytes = 0;       // in all, if is_known
  std::size_t arrived = 0;     // bytes that have arrived
  std::size_t taken = 0;       // bytes that were averaged in or stored
  std::deque<Piece> pieces;    // the bytes that have arrived and were not taken, in order

  bool has_arrived() const { return is_known && arrived == bytes; }
  // Whether the next chunk can have `size` bytes, as far as is known.
  bool fits(std::size_t size) const {
    return token != 0 && size != 0 && size % element == 0 && size <= limit() - arrived;
  }
  std::size_t limit() const { return is_known ? bytes : expected; }
};

class NeighborOperation {
 public:
  std::string name;
  std::uint64_t key = 0;
  DataType type = DataType::kFloat32;
  bool is_reduction = true;
  std::uint32_t layout = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t bytes = 0;  // size of the input
  double self_weight = 1;
  OnDeath on_death = OnDeath::kFail;
  std::vector<Delivery> deliveries;
  std::vector<Intake> intakes;
  std::vector<Bytes>* gathered = nullptr;
  GpuWork* gpu = nullptr;  // null: input and output are in host memory
  TimePoint began{};       // only set if there is a trace
  // After a failure nothing more is taken in. Data for other destinations are still sent.
  Status failure;

  // Data of up to this size travel behind their header.
  std::size_t most_eager() const { return gpu == nullptr ? kSmall : 0; }
  bool is_small() const { return bytes <= most_eager(); }
  // The first part for a destination: the data if they are small, otherwise their announcement.
  Part first(const Delivery& delivery) const;
  // The size of first() in a message.
  std::size_t first_bytes() const { return part_bytes(is_small() ? bytes : 0); }
  // first() was sent, or could not be.
  void first_sent(Delivery& delivery, const Status& status);
  // Sends as many of the chunks that were asked for as there is room for; true once the ring has
  // taken all.
  bool send_chunks(Delivery& delivery);
  // Ends the deliveries whose chunks have left.
  void confirm_chunks();
  // A peer is gone: goes on without it if the call is to survive that, and fails otherwise.
  void lose(Delivery& delivery, const Status& why);
  void lose(Intake& intake, const Status& why);
  // Records the first failure, and releases all slots.
  void fail(Status why);
  // Checks and records the header of what the source sends.
  Status accept(Intake& intake, const Header& header);
  // Averages, or stores, what has arrived from all sources.
  void take();
  // Moves its bytes of the ring's oldest message out of their slot.
  void make_room(Ring& ring);
  bool is_over() const;
  // Whether work of the GPU accesses the caller's memory.
  bool is_in_use() const { return gpu != nullptr && !gpu->is_done(last_work_); }

 private:
  Header header(const Delivery& delivery, Kind kind) const;
  Status send_on(Delivery& delivery);
  // True if nothing is left to send.
  bool settle(Delivery& delivery, Status status);
  bool survives(const Status& status) const {
    return on_death != OnDeath::kFail && status.code() == Code::kPeerDead;
  }
  // The bytes that are averaged next at once; 0: a source's have not arrived.
  std::size_t next_size(std::size_t limit) const;
  Status average(std::size_t offset, std::size_t size);
  void average_on_host(std::byte* model, const std::byte* own, std::size_t size, double own_weight);
  void store(std::size_t source);
  void consume(Intake& intake, std::size_t size);
  // Ends the use of a piece.
  void give_back(Piece& piece);
  void give_back_all(Intake& intake);
  Status move(Piece& piece);

  std::size_t averaged_ = 0;  // bytes of the output that are averaged
  std::vector<const std::byte*> inputs_;
  std::vector<double> weights_;
  GpuWork::Ticket last_work_ = 0;
};

}  // namespace dunlin::collective::neighbor
