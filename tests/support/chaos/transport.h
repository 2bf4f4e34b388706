// The transport of ChaosNetwork. Addresses and descriptors are pointers: all ranks are in one
// process.
#pragma once

#include <list>
#include <memory>

#include "tests/support/chaos/network.h"
#include "transports/transport.h"

namespace dunlin::testing {

class ChaosLane final : public transport::Lane {
 public:
  ChaosLane(ChaosNetwork& network, const transport::Link& link,
            const transport::TransportContext& context)
      : network_(network), link_(link), context_(context) {}
  ~ChaosLane() override { close(); }

  Status put(transport::LocalSlice from, transport::RemoteSlice to,
             transport::Completion* completion) override;
  Status put_notify(transport::LocalSlice from, transport::RemoteSlice to,
                    const transport::Notification& notification,
                    transport::Completion* completion) override;
  Status notify(const transport::Notification& notification,
                transport::Completion* completion) override;
  Status flush(transport::Visibility visibility, transport::Completion* completion) override;
  std::size_t progress() override;
  void close() noexcept override;

 private:
  // One posted operation; events hold it, so that it outlives a lane that is closed.
  struct Operation {
    transport::Completion* completion = nullptr;
    int pieces_left = 0;
    bool is_cancelled = false;
  };
  Status check_post();
  std::shared_ptr<Operation> post(transport::Completion* completion, int pieces);
  void post_pieces(const std::shared_ptr<Operation>& operation, transport::LocalSlice from,
                   transport::RemoteSlice to, int pieces);
  void post_notification(const std::shared_ptr<Operation>& operation,
                         const transport::Notification& notification);
  bool is_peer_there() const;

  ChaosNetwork& network_;
  const transport::Link& link_;
  transport::TransportContext context_;
  std::list<std::shared_ptr<Operation>> operations_;
  TimePoint last_landing_{};  // of everything posted so far
  bool is_closed_ = false;
};

class ChaosLink final : public transport::Link {
 public:
  // Enters itself into `links`, and leaves with its end.
  ChaosLink(ChaosNetwork& network, Rank peer, const transport::TransportContext& context,
            std::vector<ChaosLink*>& links)
      : Link(peer),
        links_(links),
        data_(network, *this, context),
        control_(network, *this, context) {
    links_.push_back(this);
  }
  ~ChaosLink() override { std::erase(links_, this); }
  transport::Lane& data() override { return data_; }
  transport::Lane& control() override { return control_; }
  Result<std::unique_ptr<transport::RemoteRegion>> import_region(
      std::span<const std::byte> descriptor, std::size_t size) override;

 private:
  std::vector<ChaosLink*>& links_;
  ChaosLane data_;
  ChaosLane control_;
};

class ChaosTransport final : public transport::Transport {
 public:
  ChaosTransport(ChaosNetwork& network, const transport::TransportContext& context);
  ~ChaosTransport() override;

  std::string_view name() const override { return "chaos"; }
  Bytes address() const override { return {}; }
  Status reach(Rank, std::span<const std::byte>) override { return Status::ok(); }
  Result<std::unique_ptr<transport::Link>> connect(Rank peer,
                                                   std::span<const std::byte> address) override;
  Result<std::unique_ptr<transport::TransportRegion>> register_memory(
      const std::shared_ptr<MemoryRegion>& memory) override;
  std::size_t progress() override;
  bool arm() override { return false; }
  void disarm() override {}
  const std::vector<int>& wait_fds() const override { return no_fds_; }

 private:
  ChaosNetwork& network_;
  transport::TransportContext context_;
  std::vector<ChaosLink*> links_;  // the fabric's
  std::vector<int> no_fds_;
};

}  // namespace dunlin::testing
