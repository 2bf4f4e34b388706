// Inbox: the receiving end of one lane. It checks arriving messages against the table of regions,
// writes their bytes, and publishes notifications in the order in which the peer posted them.
//
// Bytes are written as they arrive. Notifications, and answers to flushes, wait until every message
// with a lower number has been carried out. So they overtake neither a put that is still being
// fetched, nor messages that UCX delivers out of order. Used inside progress only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>

#include "transports/ucx/handle.h"
#include "transports/ucx/region.h"
#include "transports/ucx/wire.h"

namespace dunlin::transport::ucx {

class Inbox {
 public:
  Inbox(Engine& engine, Rank source, LaneKind lane)
      : engine_(engine), source_(source), lane_(lane) {}
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Takes a message whose `size` bytes are at `data`.
  void accept(const MessageHeader& header, const void* data, std::size_t size);
  // Takes a message whose `size` bytes UCX fetches once it is told where to put them. The handler
  // of the active message must return the result; an error fails the sender's operation.
  ucs_status_t accept_announced(const MessageHeader& header, void* descriptor, std::size_t size);
  // Carries out nothing more.
  void refuse() { is_refusing_ = true; }
  // Whether UCX still writes bytes of earlier messages.
  bool is_fetching() const;

 private:
  struct Arrival {
    Inbox* inbox;
    MessageHeader header;
    Code outcome = Code::kOk;
    bool is_fetched = true;
    std::shared_ptr<MemoryRegion> target{};  // kept alive while it is written
  };

  bool is_new(const MessageHeader& header) const;
  // kOk if the message may be carried out. Sets `entry` to its region, if it has one.
  Code check(const MessageHeader& header, const RegionTable::Entry*& entry) const;
  // The bytes of the message are written. Carries it out when it is its turn.
  void settle(const MessageHeader& header, Code outcome);
  void carry_out(const MessageHeader& header, Code outcome);
  void advance();
  static void on_fetched(void* request, ucs_status_t status, std::size_t size, void* arrival);

  Engine& engine_;
  Rank source_;
  LaneKind lane_;
  bool is_refusing_ = false;
  std::uint64_t next_ = 1;  // the number of the message whose turn it is
  // Messages that wait for their turn. The map's nodes are pooled, so that nothing is allocated in
  // steady state.
  std::pmr::unsynchronized_pool_resource pool_;
  std::pmr::map<std::uint64_t, Arrival> early_{&pool_};
};

}  // namespace dunlin::transport::ucx
