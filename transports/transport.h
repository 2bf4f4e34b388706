// Transport, Link: what a backend implements, beside its Lane.
//
// A transport is one process's end of one way to reach peers. Its folder has the same files as
// every other: transport.h (what the fabric sees), lane.{h,cc}, region.{h,cc}, constants.h,
// README.md. No header of a backend leaves its folder; the fabric knows the transports by their
// factories (transports/fabric.cc). Owner thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/bootstrap/mail.h"
#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/counters.h"
#include "runtime/peers.h"
#include "runtime/wait.h"
#include "transports/lane.h"
#include "transports/notification.h"
#include "transports/slice.h"

namespace dunlin::transport {

// What the fabric hands to its transports; outlives them.
struct TransportContext {
  Rank self;
  int local_rank = 0;     // of this process among those of the host
  std::size_t index = 0;  // the transport's place in its fabric: LocalRegion::at(index) is its own
  NotifyBoard& board;     // notifications for this process are published here
  PeerTable& peers;
  Mail& mail;
  Counters& counters;
  const Clock& clock;
  const Config& config;
};

enum class LaneKind : std::uint8_t { kData, kControl };
inline constexpr std::size_t kLaneKinds = 2;
inline constexpr LaneKind kBothLanes[kLaneKinds] = {LaneKind::kData, LaneKind::kControl};
constexpr std::size_t index_of(LaneKind kind) {
  return static_cast<std::size_t>(kind);
}
constexpr const char* to_string(LaneKind kind) {
  return kind == LaneKind::kData ? "data" : "control";
}

// Both lanes to one peer over one transport. `data` is for bulk, `control` for short messages that
// must not queue behind it.
class Link {
 public:
  explicit Link(Rank peer) : peer_(peer) {}
  virtual ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Rank peer() const { return peer_; }
  virtual Lane& data() = 0;
  virtual Lane& control() = 0;
  // `descriptor`: TransportRegion::descriptor() of the peer's region of `size` bytes.
  virtual Result<std::unique_ptr<RemoteRegion>> import_region(std::span<const std::byte> descriptor,
                                                              std::size_t size) = 0;

 private:
  Rank peer_;
};

// What every lane checks before it posts; `report_...` say in words what is wrong.
inline bool is_transfer_right(const Link& link, const LocalSlice& local,
                              const RemoteSlice& remote) {
  const bool is_through_link = remote.region() != nullptr && &remote.region()->link() == &link;
  return local.size() == remote.size() && (local.size() == 0 || is_through_link);
}
Status report_transfer(const Link& link, const LocalSlice& local, const RemoteSlice& remote);
inline Status check_transfer(const Link& link, const LocalSlice& local, const RemoteSlice& remote) {
  return is_transfer_right(link, local, remote) ? Status::ok()
                                                : report_transfer(link, local, remote);
}
// Whether the transport at `index` of its fabric holds the local memory: not every one reaches GPU
// memory, of which nobody else may follow the addresses.
inline bool is_local_right(const LocalSlice& local, std::size_t index) {
  return local.size() == 0 || local.region()->at(index) != nullptr;
}
Status check_local(const Link& link, const LocalSlice& local, std::size_t index,
                   std::string_view transport);
// Of an atomic's word.
Status check_word(const Link& link, const RemoteSlice& word);
inline bool is_notification_right(const Notification& notification, std::size_t peer_cells) {
  return static_cast<std::size_t>(notification.id) < peer_cells &&
         notification.inline_data.size() <= kInlineBytes;
}
Status report_notification(const Notification& notification, std::size_t peer_cells);
inline Status check_notification(const Notification& notification, std::size_t peer_cells) {
  return is_notification_right(notification, peer_cells)
             ? Status::ok()
             : report_notification(notification, peer_cells);
}

class Transport : public Progressor {
 public:
  virtual std::string_view name() const = 0;
  // What a peer needs to reach this process.
  virtual Bytes address() const = 0;
  // ok when the peer with this address can be reached; else why not, in words. Cheap, local.
  virtual Status reach(Rank peer, std::span<const std::byte> address) = 0;
  virtual Result<std::unique_ptr<Link>> connect(Rank peer, std::span<const std::byte> address) = 0;
  // kUnavailable for memory of a kind that this transport can't reach.
  virtual Result<std::unique_ptr<TransportRegion>> register_memory(
      const std::shared_ptr<MemoryRegion>& memory) = 0;
  // False while nothing but a first contact can need progress(): it is called less often then.
  virtual bool is_in_use() const { return true; }
};

// Makes a transport, or says why it doesn't work here (no device, not in this build).
struct TransportFactory {
  std::string name;
  std::function<Result<std::unique_ptr<Transport>>(const TransportContext&)> make;
};

}  // namespace dunlin::transport
