// Meeting: how a rank finds and connects to another rank that it communicates with for the first
// time: it looks up what that rank has published, then connects. Owner thread only.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "collectives/waiting/lookup_backoff.h"
#include "transports/fabric.h"

namespace dunlin::collective {

class Meeting {
 public:
  // kBusy until the peer has published `key` and `connect(offer)` has succeeded. A peer that can't
  // be reached may be dying, which the peer table learns later, so connect() is tried again for
  // kNewsTime.
  template <typename Connect>
  Status meet(transport::Fabric& fabric, Rank peer, const std::string& key, Connect&& connect) {
    const TimePoint now = fabric.clock().now();
    if (!lookups_.is_due(now)) return Status::busy();
    const Result<Bytes> offer = fabric.bootstrap().lookup(key, Duration::zero());
    Status status = offer ? connect(*offer) : offer.status();
    if (status.is_ok()) return status;
    // kDeadlineExceeded: the peer has not published the key, or not opened a transport yet.
    if (status.code() != Code::kDeadlineExceeded && status.code() != Code::kPeerStalled) {
      if (!may_pass(status.code())) return std::move(status).with_peer(peer);
      if (!failing_since_) failing_since_ = now;
      if (now - *failing_since_ >= kNewsTime) return std::move(status).with_peer(peer);
    } else {
      failing_since_.reset();
    }
    lookups_.put_off(now);
    return Status::busy();
  }

 private:
  // Longer than a heartbeat between hosts.
  static constexpr Duration kNewsTime = std::chrono::seconds(5);

  static bool may_pass(Code code) {
    return code == Code::kUnavailable || code == Code::kClosed || code == Code::kNotFound ||
           code == Code::kIoError;
  }

  LookupBackoff lookups_;
  std::optional<TimePoint> failing_since_;
};

}  // namespace dunlin::collective
