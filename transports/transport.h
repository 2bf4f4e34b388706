// Transport and Link: the interfaces that a backend implements, beside Lane (transports/lane.h).
//
// A transport is one process's end of one way to reach peers, such as shared memory or RDMA. A
// link holds the two lanes to one peer over one transport. The fabric (transports/fabric.h) owns
// the transports and picks one per peer.
//
// Each backend is a folder with at least transport.{h,cc}, lane.{h,cc}, region.{h,cc}, constants.h
// and README.md, which play the same roles everywhere. Code outside the folder makes a backend only
// through its TransportFactory; transports/builtin.cc lists the factories of this build.
//
// All functions are called by the owner thread only, except where stated.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/bootstrap/bootstrap.h"
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

// What the fabric hands to a transport. Everything referred to outlives the transport.
struct TransportContext {
  Rank self;
  int local_rank = 0;     // index of this process among the job's processes on this host
  std::size_t index = 0;  // the transport's index in its fabric, for LocalRegion::at()
  NotifyBoard& board;     // the transport publishes notifications for this process here
  PeerTable& peers;
  Mail& mail;
  const JobKey& key;  // known to the ranks of this job only
  Counters& counters;
  const Clock& clock;
  const Config& config;
  bool spans_pid_namespaces = false;  // JobInfo's
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

// The two lanes to one peer over one transport. The data lane carries bulk transfers. The control
// lane carries short messages, which must not queue behind bulk transfers.
class Link {
 public:
  explicit Link(Rank peer) : peer_(peer) {}
  virtual ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Rank peer() const { return peer_; }
  virtual Lane& data() = 0;
  virtual Lane& control() = 0;
  // Makes a peer's region of `size` bytes usable here. `descriptor` is what
  // TransportRegion::descriptor() returned at the peer. The link must outlive the result.
  virtual Result<std::unique_ptr<RemoteRegion>> import_region(std::span<const std::byte> descriptor,
                                                              std::size_t size) = 0;

 private:
  Rank peer_;
};

// The checks that every lane makes before it posts an operation. The is_..._valid() functions are
// inline because they are on the data path; the report_...() functions build the error.

// A transfer is valid when both slices have the same size and, unless they are empty, the remote
// slice was imported through this link.
inline bool is_transfer_valid(const Link& link, const LocalSlice& local,
                              const RemoteSlice& remote) {
  const bool is_through_link = remote.region() != nullptr && &remote.region()->link() == &link;
  return local.size() == remote.size() && (local.size() == 0 || is_through_link);
}
Status report_transfer(const Link& link, const LocalSlice& local, const RemoteSlice& remote);
inline Status check_transfer(const Link& link, const LocalSlice& local, const RemoteSlice& remote) {
  return is_transfer_valid(link, local, remote) ? Status::ok()
                                                : report_transfer(link, local, remote);
}
// Whether the transport at `index` of the fabric has registered the local memory. Some transports
// cannot access GPU memory; the host must not dereference its pointers.
inline bool is_local_valid(const LocalSlice& local, std::size_t index) {
  return local.size() == 0 || local.region()->at(index) != nullptr;
}
Status check_local(const Link& link, const LocalSlice& local, std::size_t index,
                   std::string_view transport);
// kInvalidArgument unless `word` is an aligned 64-bit word that was imported through this link.
Status check_word(const Link& link, const RemoteSlice& word);
// A notification is valid when the peer's board of `peer_cells` cells has its cell and its inline
// data fits into a cell.
inline bool is_notification_valid(const Notification& notification, std::size_t peer_cells) {
  return static_cast<std::size_t>(notification.id) < peer_cells &&
         notification.inline_data.size() <= kInlineBytes;
}
Status report_notification(const Notification& notification, std::size_t peer_cells);
inline Status check_notification(const Notification& notification, std::size_t peer_cells) {
  return is_notification_valid(notification, peer_cells)
             ? Status::ok()
             : report_notification(notification, peer_cells);
}

class Transport : public Progressor {
 public:
  static constexpr std::size_t kLargestOutline = 3072;  // fits into a message of the bootstrap

  virtual std::string_view name() const = 0;
  // Whether open() has work to do. Such a transport listens on the network, where strangers can
  // reach it. So the fabric opens it only when this process or a peer finds that the transports
  // before it in the list do not connect the two.
  virtual bool opens_on_demand() const { return false; }
  // What peers are told of this process before open(), at most kLargestOutline bytes.
  virtual Bytes outline() const { return {}; }
  // Called once, before any other function below except register_memory() and progress().
  virtual Status open() { return Status::ok(); }
  // Called after open() and before this process and a peer with this outline connect to each
  // other, perhaps more than once. A transport that listens does so where it faces the peer, and
  // nowhere else. address() holds the result.
  virtual Status face(std::span<const std::byte> peers_outline) {
    (void)peers_outline;
    return Status::ok();
  }
  // What a peer's transport of the same name needs to reach this process.
  virtual Bytes address() const = 0;
  // Returns ok if this transport can reach the peer with this address. The error otherwise explains
  // why it cannot. The check is cheap and sends nothing.
  virtual Status reach(Rank peer, std::span<const std::byte> address) = 0;
  // The transport must outlive the link.
  virtual Result<std::unique_ptr<Link>> connect(Rank peer, std::span<const std::byte> address) = 0;
  // Fails with kUnavailable for a kind of memory that this transport cannot access.
  virtual Result<std::unique_ptr<TransportRegion>> register_memory(
      const std::shared_ptr<MemoryRegion>& memory) = 0;
  // Stops the writes of a peer that is gone: returns ok once nothing that the peer has posted, or
  // will post, can change this process's memory or board any more. kBusy: not yet; call progress()
  // and try again. The peer cannot connect again. Called outside progress().
  virtual Status revoke(Rank peer) = 0;
  // Returns false while only a peer's first contact can need progress(). The fabric then calls
  // progress() less often.
  virtual bool is_in_use() const { return true; }
};

// Makes a transport. The error explains why the transport does not work here: there is no device,
// for instance, or this build does not contain it.
struct TransportFactory {
  std::string name;
  std::function<Result<std::unique_ptr<Transport>>(const TransportContext&)> make;
};

}  // namespace dunlin::transport
