#include "collectives/neighbor/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/kernels/average.h"

namespace dunlin::collective::neighbor {

Header NeighborOperation::header(const Delivery& delivery, Kind kind) const {
  Header made;
  made.key = key;
  made.sequence = delivery.sequence;
  made.bytes = bytes;
  made.weight = delivery.weight;
  made.kind = kind;
  made.type = static_cast<std::uint8_t>(type);
  made.is_reduction = is_reduction ? 1 : 0;
  made.layout = layout;
  return made;
}

Part NeighborOperation::first(const Delivery& delivery) const {
  return {header(delivery, is_small() ? Kind::kEager : Kind::kAnnounce),
          {input, is_small() ? bytes : 0}};
}

void NeighborOperation::first_sent(Delivery& delivery, const Status& status) {
  delivery.is_announced = true;
  if (status.is_ok() && !is_small()) return;  // its chunks follow
  if (status.is_ok()) delivery.sent = bytes;
  settle(delivery, status);
}

bool NeighborOperation::send_chunks(Delivery& delivery) {
  if (delivery.is_over) return true;
  Status status = send_on(delivery);
  if (!status.is_ok()) return settle(delivery, std::move(status));
  settle(delivery, delivery.pair->chunks->sent(delivery.messages));
  return true;
}

void NeighborOperation::confirm_chunks() {
  for (Delivery& delivery : deliveries) {
    const bool is_taken = delivery.messages > 0 && delivery.sent == bytes;
    if (is_taken && !delivery.is_over)
      settle(delivery, delivery.pair->chunks->sent(delivery.messages));
  }
}

Status NeighborOperation::send_on(Delivery& delivery) {
  if (!delivery.is_announced) return Status::busy();
  Ring& chunks = *delivery.pair->chunks;
  while (delivery.sent < bytes) {
    const std::size_t size = std::min(chunks.slot_bytes(), bytes - delivery.sent);
    DUNLIN_TRY(chunks.send(delivery.token, std::span(input + delivery.sent, size)));
    delivery.sent += size;
    if (gpu != nullptr) last_work_ = gpu->started();
  }
  delivery.messages = chunks.taken();
  return Status::ok();
}

bool NeighborOperation::settle(Delivery& delivery, Status status) {
  if (status.is_busy()) return false;
  delivery.is_over = true;
  if (survives(status)) return true;
  delivery.has_failed = gpu != nullptr && !status.is_ok();
  if (!status.is_ok()) fail(std::move(status).with_peer(delivery.pair->peer));
  return true;
}

void NeighborOperation::lose(Delivery& delivery, const Status& why) {
  delivery.is_over = true;
  if (!survives(why)) fail(why);
}

void NeighborOperation::lose(Intake& intake, const Status& why) {
  if (!survives(why)) return fail(why);
  intake.is_lost = true;
  intake.token = 0;  // what still comes is of no use, as its place may have been averaged
  if (intake.is_known) return;
  // Without the announcement, nobody knows what these are.
  give_back_all(intake);
}

void NeighborOperation::fail(Status why) {
  if (failure.is_ok()) failure = std::move(why);
  for (Intake& intake : intakes) give_back_all(intake);
}

void NeighborOperation::give_back_all(Intake& intake) {
  for (Piece& piece : intake.pieces) give_back(piece);
  intake.pieces.clear();
}

Status NeighborOperation::accept(Intake& intake, const Header& header) {
  const auto theirs = static_cast<DataType>(header.type);
  const bool is_same_kind = (header.is_reduction != 0) == is_reduction;
  if (!is_same_kind || theirs != type || (is_reduction && header.bytes != bytes)) {
    const auto kind = [](bool is_average) { return is_average ? "average" : "gather"; };
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' {}: the neighbor sends {} bytes of {} to {}, and here are {} "
                              "bytes of {} to {}",
                              name, intake.sequence, header.bytes, to_string(theirs),
                              kind(header.is_reduction != 0), bytes, to_string(type),
                              kind(is_reduction)))
        .with_peer(intake.pair->peer);
  }
  if (header.layout != layout) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' {}: what the neighbor sends has another layout than what is "
                              "here",
                              name, intake.sequence))
        .with_peer(intake.pair->peer);
  }
  if (intake.is_known) {
    return Status(Code::kCorrupted,
                  fmt::format("'{}' {}: the neighbor has sent it twice", name, intake.sequence))
        .with_peer(intake.pair->peer);
  }
  if (intake.arrived > header.bytes) {
    return Status(Code::kCorrupted, fmt::format("'{}' {}: {} bytes of {} have arrived", name,
                                                intake.sequence, intake.arrived, header.bytes))
        .with_peer(intake.pair->peer);
  }
  intake.is_known = true;
  intake.bytes = header.bytes;
  intake.weight *= header.weight;
  return Status::ok();
}

void NeighborOperation::take() {
  if (!is_reduction) {
    for (std::size_t source = 0; source < intakes.size(); ++source) store(source);
    return;
  }
  // Data that are averaged in place have to be sent before.
  std::size_t limit = bytes;
  if (input == output) {
    for (const Delivery& delivery : deliveries) {
      if (!delivery.is_over) limit = std::min(limit, delivery.sent);
    }
  }
  while (averaged_ < limit) {
    const std::size_t size = next_size(limit - averaged_);
    if (size == 0) return;
    if (Status status = average(averaged_, size); !status.is_ok())
      return fail(std::move(status).with_context(fmt::format("'{}'", name)));
    averaged_ += size;
  }
}

std::size_t NeighborOperation::next_size(std::size_t limit) const {
  for (const Intake& intake : intakes) {
    const bool has_piece = intake.is_known && !intake.pieces.empty();
    if (!has_piece && intake.is_lost) continue;
    limit = has_piece ? std::min(limit, intake.pieces.front().bytes.size()) : 0;
  }
  return limit;
}

Status NeighborOperation::average(std::size_t offset, std::size_t size) {
  inputs_.clear();
  weights_.clear();
  double own_weight = self_weight;
  for (const Intake& intake : intakes) {
    if (intake.pieces.empty()) {
      if (on_death == OnDeath::kOwnData) own_weight += intake.weight;
      continue;
    }
    inputs_.push_back(intake.pieces.front().bytes.data());
    weights_.push_back(intake.weight);
  }
  if (gpu == nullptr) {
    average_on_host(output + offset, input + offset, size, own_weight);
  } else {
    DUNLIN_TRY(gpu->average(type, input + offset, output + offset, size / size_of(type), own_weight,
                            inputs_, weights_));
    last_work_ = gpu->started();
  }
  for (Intake& intake : intakes) {
    if (!intake.pieces.empty()) consume(intake, size);
  }
  return Status::ok();
}

// Copied and averaged in blocks that stay in the caches between the two.
void NeighborOperation::average_on_host(std::byte* model, const std::byte* own, std::size_t size,
                                        double own_weight) {
  constexpr std::size_t kBlock = std::size_t{32} << 10;
  for (std::size_t done = 0; done < size;) {
    const std::size_t part = std::min(kBlock, size - done);
    if (model != own) std::memcpy(model + done, own + done, part);
    weighted_average(type, model + done, part / size_of(type), own_weight, inputs_, weights_);
    for (const std::byte*& source : inputs_) source += part;
    done += part;
  }
}

void NeighborOperation::store(std::size_t source) {
  Intake& intake = intakes[source];
  Bytes& to = (*gathered)[source];
  if (intake.is_known && to.size() != intake.bytes) to.resize(intake.bytes);
  while (intake.is_known && !intake.pieces.empty()) {
    const std::span<const std::byte> from = intake.pieces.front().bytes;
    if (!from.empty()) std::memcpy(to.data() + intake.taken, from.data(), from.size());
    consume(intake, from.size());
  }
}

void NeighborOperation::consume(Intake& intake, std::size_t size) {
  intake.taken += size;
  Piece& piece = intake.pieces.front();
  piece.bytes = piece.bytes.subspan(size);
  if (!piece.bytes.empty()) return;
  give_back(piece);
  intake.pieces.pop_front();
}

void NeighborOperation::give_back(Piece& piece) {
  if (piece.ring != nullptr) piece.ring->release(piece.sequence);
  if (piece.moved_on_gpu != nullptr) gpu->free_later(std::move(piece.moved_on_gpu));
}

Status NeighborOperation::move(Piece& piece) {
  const std::size_t size = piece.bytes.size();
  if (gpu == nullptr) {
    piece.moved.assign(piece.bytes.begin(), piece.bytes.end());
    piece.bytes = piece.moved;
    return Status::ok();
  }
  DUNLIN_ASSIGN(auto memory, MemoryRegion::allocate_on_gpu(gpu->driver(), gpu->device(), size));
  DUNLIN_TRY(gpu->copy(memory->data(), piece.bytes.data(), size));
  piece.bytes = {memory->data(), size};
  piece.moved_on_gpu = std::move(memory);
  return Status::ok();
}

void NeighborOperation::make_room(Ring& ring) {
  const std::uint64_t oldest = ring.oldest();
  for (Intake& intake : intakes) {
    for (Piece& piece : intake.pieces) {
      if (piece.ring != &ring || piece.sequence != oldest) continue;
      if (Status status = move(piece); !status.is_ok())
        return fail(std::move(status).with_context("moving data out of their slot"));
      piece.ring = nullptr;
      ring.release(oldest);
      return;
    }
  }
}

bool NeighborOperation::is_over() const {
  const auto is_sent = [](const Delivery& delivery) { return delivery.is_over; };
  if (is_in_use() || !std::all_of(deliveries.begin(), deliveries.end(), is_sent)) return false;
  if (!failure.is_ok()) return true;
  const auto is_taken = [](const Intake& intake) {
    return intake.is_lost || (intake.is_known && intake.taken == intake.bytes);
  };
  return (!is_reduction || averaged_ == bytes) &&
         std::all_of(intakes.begin(), intakes.end(), is_taken);
}

}  // namespace dunlin::collective::neighbor
