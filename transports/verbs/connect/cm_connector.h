// CmConnector: makes connections by librdmacm, between IP addresses.
#pragma once

#include <rdma/rdma_cma.h>

#include <memory>
#include <string>

#include "transports/verbs/connect/session.h"

namespace dunlin::transport::verbs {

// Its descriptor is readable while events are pending. Reading events never blocks.
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

// An identifier of librdmacm, and the queue pair that belongs to it, if any. All its events must be
// acknowledged before it is destroyed.
class CmId {
 public:
  static Result<CmId> create(const EventChannel& channel);
  // Takes ownership of the identifier of a connection request.
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
  // Listens at `ip`, the address of this process's port with index `port`. Up to `backlog` requests
  // wait until take_events() takes them.
  static Result<std::unique_ptr<CmConnector>> create(const std::string& ip, std::size_t port,
                                                     int backlog, const Delivery& delivery,
                                                     OnRequest on_request);

  // Belongs to librdmacm and lives as long as the process.
  ibv_context* device() const { return listener_.get()->verbs; }
  // The port number at which it listens.
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
