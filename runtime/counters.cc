#include "runtime/counters.h"

#include <fmt/format.h>

namespace dunlin {

PeerCounters Counters::total() const {
  PeerCounters sum;
  for (const PeerCounters& peer : peers_) {
    sum.puts += peer.puts;
    sum.put_bytes += peer.put_bytes;
    sum.notifies += peer.notifies;
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
    const PeerCounters& peer = peers_[rank];
    if (peer.puts + peer.notifies + peer.messages_received == 0) continue;
    text += fmt::format(
        "rank {}: {} puts, {} bytes, {} notifications, {} refused; messages: {} sent, {} received, "
        "{} "
        "waits for credit\n",
        rank, peer.puts, peer.put_bytes, peer.notifies, peer.busy, peer.messages_sent,
        peer.messages_received, peer.credit_waits);
  }
  return text;
}

}  // namespace dunlin
