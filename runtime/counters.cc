#include "runtime/counters.h"

#include <fmt/format.h>

namespace dunlin {

PeerCounters& Counters::peer(Rank rank) {
  std::atomic<PeerCounters*>& place = peers_[rank.index()];
  PeerCounters* found = place.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = &used_.emplace_back();
    // Pairs with the acquire load of another thread that reads.
    place.store(found, std::memory_order_release);
  }
  return *found;
}

const PeerCounters& Counters::peer(Rank rank) const {
  static constexpr PeerCounters kUnused{};
  const PeerCounters* const found = peers_[rank.index()].load(std::memory_order_acquire);
  return found == nullptr ? kUnused : *found;
}

PeerCounters Counters::total() const {
  PeerCounters sum;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const PeerCounters& peer = this->peer(Rank(static_cast<int>(rank)));
    sum.puts += peer.puts;
    sum.put_bytes += peer.put_bytes;
    sum.notifies += peer.notifies;
    sum.gets += peer.gets;
    sum.get_bytes += peer.get_bytes;
    sum.atomics += peer.atomics;
    sum.busy += peer.busy;
    sum.messages_sent += peer.messages_sent;
    sum.messages_received += peer.messages_received;
    sum.credit_waits += peer.credit_waits;
  }
  return sum;
}

std::string Counters::dump() const {
  std::string text;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const PeerCounters& peer = this->peer(Rank(static_cast<int>(rank)));
    const std::uint64_t operations = peer.puts + peer.notifies + peer.gets + peer.atomics;
    if (operations + peer.messages_received == 0) continue;
    text += fmt::format(
        "rank {}: {} puts, {} bytes, {} notifications, {} gets, {} bytes, {} atomics, {} refused; "
        "messages: {} sent, {} received, {} waits for credit\n",
        rank, peer.puts, peer.put_bytes, peer.notifies, peer.gets, peer.get_bytes, peer.atomics,
        peer.busy, peer.messages_sent, peer.messages_received, peer.credit_waits);
  }
  return text;
}

}  // namespace dunlin
