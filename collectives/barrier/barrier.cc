#include "collectives/barrier/barrier.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/barrier/offer.h"

namespace dunlin::collective {

using transport::Awaited;
using transport::NotifyId;

Result<std::unique_ptr<Barrier>> Barrier::prepare(transport::Fabric& fabric, std::string name,
                                                  std::vector<Rank> members) {
  std::unique_ptr<Barrier> barrier(new Barrier(fabric, std::move(name), std::move(members)));
  DUNLIN_TRY(barrier->allocate());
  return barrier;
}

Status Barrier::allocate() {
  const auto place = std::find(members_.begin(), members_.end(), fabric_.rank());
  if (place == members_.end()) {
    return {Code::kInvalidArgument,
            fmt::format("barrier '{}': rank {} is not a member", name_, fabric_.rank().value())};
  }
  const std::size_t count = members_.size();
  const auto self = static_cast<std::size_t>(place - members_.begin());
  std::vector<Rank> neighbors;
  for (std::size_t distance = 1; distance < count; distance *= 2) {
    Round& round = rounds_.emplace_back();
    round.to = neighbors.emplace_back(members_[(self + distance) % count]);
    round.from = neighbors.emplace_back(members_[(self + count - distance) % count]);
  }
  if (rounds_.empty()) return Status::ok();
  DUNLIN_ASSIGN(cells_, fabric_.board().allocate(rounds_.size()));
  has_cells_ = true;
  round_ = rounds_.size();
  return offers_.emplace(fabric_.bootstrap(), "barrier/" + name_, neighbors, neighbors)
      .publish(BarrierOffer{static_cast<std::uint32_t>(count), cells_}.encode());
}

Status Barrier::connect() {
  if (rounds_.empty()) return Status::ok();
  const Duration timeout = fabric_.config().deadline;
  DUNLIN_TRY(offers_->fetch(timeout));
  std::vector<Rank> peers;
  for (const Round& round : rounds_) peers.push_back(round.to);
  DUNLIN_TRY(fabric_.fetch_addresses(peers, timeout));
  for (std::size_t i = 0; i < rounds_.size(); ++i) {
    Round& round = rounds_[i];
    DUNLIN_ASSIGN(const Bytes bytes, offers_->lookup(round.to, timeout));
    const auto offer = BarrierOffer::decode(bytes);
    if (!offer) return offer.status().with_peer(round.to);
    if (offer->members != members_.size()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("barrier '{}': the peer lists {} members, this rank {}", name_,
                                offer->members, members_.size()))
          .with_peer(round.to);
    }
    round.peer_cell =
        NotifyId(static_cast<std::uint32_t>(offer->first_cell) + static_cast<std::uint32_t>(i));
    DUNLIN_ASSIGN(round.link, fabric_.link(round.to));
  }
  return Status::ok();
}

Barrier::~Barrier() {
  if (has_cells_) fabric_.board().free(cells_, rounds_.size());
}

NotifyId Barrier::own_cell(std::size_t round) const {
  return NotifyId(static_cast<std::uint32_t>(static_cast<std::uint32_t>(cells_) + round));
}

Status Barrier::start() {
  if (round_ < rounds_.size()) {
    return {Code::kInvalidArgument,
            fmt::format("barrier '{}' is started again before it has completed", name_)};
  }
  ++generation_;
  round_ = 0;
  has_notified_ = false;
  steps_.begin();
  return Status::ok();
}

Status Barrier::test() {
  return steps_.test();
}

Status Barrier::step() {
  for (; round_ < rounds_.size(); ++round_, has_notified_ = false) {
    if (!has_notified_) {
      transport::Notification arrival;
      arrival.id = rounds_[round_].peer_cell;
      arrival.sequence = generation_;
      DUNLIN_TRY(rounds_[round_].link->control().notify(arrival, nullptr));
      has_notified_ = true;
    }
    // A fast peer may already have entered the next barrier.
    if (fabric_.board().sequence(own_cell(round_)) < generation_) return Status::busy();
  }
  return Status::ok();
}

Status Barrier::wait(Duration timeout) {
  DUNLIN_TRY(start());
  const Within waiting = steps_.await();
  return fabric_.wait(
      [this] { return test(); },
      transport::Awaiting{[this] { return awaited(); }, [this] { return blocker(); }}, timeout);
}

Rank Barrier::blocker() const {
  return round_ < rounds_.size() ? rounds_[round_].from : Rank();
}

std::vector<Awaited> Barrier::awaited() const {
  if (round_ >= rounds_.size()) return {};
  return {{rounds_[round_].from,
           fmt::format("round {} of barrier '{}' #{}", round_, name_, generation_)}};
}

}  // namespace dunlin::collective
