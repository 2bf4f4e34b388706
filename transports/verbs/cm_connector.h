// CmConnector: connections by librdmacm, between IP addresses.
#pragma once

#include <rdma/rdma_cma.h>

#include <memory>
#include <string>

#include "transports/verbs/session.h"

namespace dunlin::transport::verbs {

// Its descriptor is readable when an event has come. Never blocks.
class EventChannel {
 public:
  static Result<std::unique_ptr<EventChannel>> create();
  ~EventChannel() { rdma_destroy_event_channel(handle_); }
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;
  rdma_event_channel* handle() const { return handle_; }

 private:
  explicit EventChannel(rdma_event_channel* handle) : handle_(handle) {}
  rdma_event_channel* handle_;
};

// An identifier, with its queue pair when there is one. Its events have to be acknowledged before
// it goes.
class CmId {
 public:
  static Result<CmId> create(const EventChannel& channel);
  // Takes over the identifier of a connection request.
  explicit CmId(rdma_cm_id* handle) : handle_(handle) {}
  CmId(CmId&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CmId& operator=(CmId&&) = delete;
  ~CmId();
  rdma_cm_id* get() const { return handle_; }

 private:
  rdma_cm_id* handle_;
};

class CmConnector final : public Connector {
 public:
  // Listens at `ip`, of our port of that index, for up to `backlog` connections at a time that
  // nobody has looked at yet.
  static Result<std::unique_ptr<CmConnector>> create(const std::string& ip, std::size_t port,
                                                     int backlog, const Delivery& delivery,
                                                     OnRequest on_request);

  // librdmacm's, lives as long as the process.
  ibv_context* device() const { return listener_.get()->verbs; }
  // Where it listens.
  std::uint16_t ip_port() const;

  Result<std::unique_ptr<Session>> open(Rank peer, const Address& address,
                                        std::size_t port) override;
  void take_events() override;
  int fd() const override { return channel_->handle()->fd; }

 private:
  CmConnector(std::unique_ptr<EventChannel> channel, CmId listener, std::string ip,
              std::size_t port, const Delivery& delivery, OnRequest on_request);
  void dispatch(rdma_cm_id* id, rdma_cm_event_type type, int status,
                std::vector<std::byte> private_data, std::uint8_t reads);

  std::unique_ptr<EventChannel> channel_;
  CmId listener_;
  const std::string ip_;
  const std::size_t port_;
  const Delivery delivery_;
  OnRequest on_request_;
};

}  // namespace dunlin::transport::verbs
