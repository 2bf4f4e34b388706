// Inbox: the receiving end of one lane. Checks what arrives against the table of regions, writes
// it, and makes notifications visible in the order in which the peer posted them.
//
// Bytes are written as they come; notifications (and answers to flushes) wait until every message
// with a lower number has been carried out. So neither a put that is still being fetched nor
// messages that UCX delivers out of turn can be overtaken. Used inside progress only.
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

  // A message whose `size` bytes are at `data`.
  void accept(const MessageHeader& header, const void* data, std::size_t size);
  // A message whose `size` bytes UCX fetches when told where to. Returns what the handler of the
  // active message has to return: an error ends the sender's operation with it.
  ucs_status_t accept_announced(const MessageHeader& header, void* descriptor, std::size_t size);

 private:
  struct Arrival {
    Inbox* inbox;
    MessageHeader header;
    Code outcome = Code::kOk;
    bool is_fetched = true;
    std::shared_ptr<MemoryRegion> target{};  // held while it is written
  };

  bool is_new(const MessageHeader& header) const;
  // ok when the message may do what it wants; `entry` is its region, if it has one.
  Code check(const MessageHeader& header, const RegionTable::Entry*& entry) const;
  // The message's own part is over; it takes its turn.
  void settle(const MessageHeader& header, Code outcome);
  void carry_out(const MessageHeader& header, Code outcome);
  void advance();
  static void on_fetched(void* request, ucs_status_t status, std::size_t size, void* arrival);

  Engine& engine_;
  Rank source_;
  LaneKind lane_;
  std::uint64_t next_ = 1;  // the number whose turn it is
  // Messages that wait for their turn. Nodes are pooled: no allocation once it has been that full.
  std::pmr::unsynchronized_pool_resource pool_;
  std::pmr::map<std::uint64_t, Arrival> early_{&pool_};
};

}  // namespace dunlin::transport::ucx
