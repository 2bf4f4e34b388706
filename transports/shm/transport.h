// The shm transport, which reaches peers on the same host through memory that both have mapped.
#pragma once

#include <memory>

#include "transports/shm/lane.h"
#include "transports/shm/retired_memory.h"
#include "transports/shm/segment.h"
#include "transports/transport.h"

namespace dunlin::transport::shm {

class ShmLink final : public Link {
 public:
  ShmLink(Rank peer, std::unique_ptr<PeerProcess> process, std::unique_ptr<PeerSegment> segment,
          const TransportContext& context, ShmIndirect& indirect);

  Lane& data() override { return data_; }
  Lane& control() override { return control_; }
  Result<std::unique_ptr<RemoteRegion>> import_region(std::span<const std::byte> descriptor,
                                                      std::size_t size) override;
  PeerSegment& segment() const { return *segment_; }
  PeerProcess& process() const { return *process_; }

 private:
  ShmIndirect& indirect_;
  std::unique_ptr<PeerProcess> process_;
  std::unique_ptr<PeerSegment> segment_;
  ShmLane data_;
  ShmLane control_;
};

class ShmTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> create(const TransportContext& context);
  ~ShmTransport() override = default;

  std::string_view name() const override { return "shm"; }
  Bytes address() const override { return segment_->address().encode(); }
  Status reach(Rank peer, std::span<const std::byte> address) override;
  Result<std::unique_ptr<Link>> connect(Rank peer, std::span<const std::byte> address) override;
  Result<std::unique_ptr<TransportRegion>> register_memory(
      const std::shared_ptr<MemoryRegion>& memory) override;

  Status revoke(Rank peer) override;

  // Only operations on memory that the CPU cannot access need progress: otherwise, peers write
  // directly to the memory that the owner polls.
  std::size_t progress() override {
    if (!retired_.is_empty()) [[unlikely]]
      retired_.progress();
    return indirect_.busy.progress();
  }
  bool is_in_use() const override { return !indirect_.busy.is_empty(); }
  bool arm() override;
  void disarm() override;
  const std::vector<int>& wait_fds() const override { return wait_fds_; }

 private:
  ShmTransport(const TransportContext& context, std::unique_ptr<Segment> segment)
      : context_(context),
        segment_(std::move(segment)),
        wait_fds_{segment_->doorbell_fd()},
        retired_(segment_->memory(), context.clock) {}

  // Opens this process to peers in other PID namespaces.
  void start_server();
  Result<std::unique_ptr<PeerProcess>> meet(const SegmentAddress& there) const;
  // Returns the status. Logs, once, why a peer of this host is not reached.
  Status refuse(Rank peer, Status why);

  TransportContext context_;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<DescriptorServer> server_;  // null: no peer needs it, or it doesn't work here
  bool has_warned_ = false;                   // of a peer of this host that is not reached
  std::vector<int> wait_fds_;
  ShmIndirect indirect_;
  RetiredMemory retired_;
  std::uint64_t next_generation_ = 1;
  std::uint32_t next_place_ = 0;  // where the search for a free place begins
};

}  // namespace dunlin::transport::shm
