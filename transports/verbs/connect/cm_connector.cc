#include "transports/verbs/connect/cm_connector.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transports/verbs/constants.h"
#include "transports/verbs/device/device.h"

namespace dunlin::transport::verbs {
namespace {

// Reasons for a rejection (InfiniBand specification, volume 1, 12.6.7.2).
constexpr int kNoListener = 8;
constexpr int kRefused = 28;

Status check(int result, const std::string& call) {
  return result == 0 ? Status::ok() : Status::from_errno(call, errno);
}

std::string describe(rdma_cm_event_type type, int status) {
  return fmt::format("{} ({})", rdma_event_str(type),
                     status < 0 ? std::strerror(-status) : fmt::format("reason {}", status));
}

bool is_for_now(std::span<const std::byte> refusal) {
  return !refusal.empty() && refusal.front() == std::byte(Session::Refusal::kForNow);
}

class CmSession final : public Session {
 public:
  CmSession(CmId id, const Delivery& delivery, std::string from, PortAddress to)
      : id_(std::move(id)), delivery_(delivery), from_(std::move(from)), to_(std::move(to)) {
    id_.get()->context = this;
    // Takes effect on the queue pair when it is connected. If the option is not supported, the
    // fabric's default of a second or more holds.
    set_option(RDMA_OPTION_ID_ACK_TIMEOUT, delivery.timeout);
  }

  // The end that connects calls this. The end that accepts uses the traffic class of the request.
  void set_traffic_class() {
    if (delivery_.traffic_class >= 0)
      set_option(RDMA_OPTION_ID_TOS, static_cast<std::uint8_t>(delivery_.traffic_class));
  }

  Status create_queue_pair(const ProtectionDomain& domain, ibv_qp_init_attr attributes) override {
    DUNLIN_TRY(check(rdma_create_qp(id_.get(), domain.handle(), &attributes), "rdma_create_qp"));
    queue_pair_ = id_.get()->qp;
    return Status::ok();
  }

  Status find_route() override {
    DUNLIN_ASSIGN(SocketAddress from, SocketAddress::parse(from_, 0));
    DUNLIN_ASSIGN(SocketAddress to, SocketAddress::parse(to_.ip, to_.ip_port));
    return check(rdma_resolve_addr(id_.get(), from.get(), to.get(), kResolveMilliseconds),
                 "rdma_resolve_addr " + to_.ip);
  }

  Status request(const Request& request, std::uint8_t reads) override {
    rdma_conn_param parameters{};
    parameters.private_data = &request;
    parameters.private_data_len = sizeof request;
    parameters.initiator_depth = reads;
    parameters.retry_count = delivery_.retries;
    parameters.rnr_retry_count = kReceiverNotReadyRetries;
    return check(rdma_connect(id_.get(), &parameters), "rdma_connect");
  }

  Status accept(const Answer& answer, std::uint8_t reads) override {
    rdma_conn_param parameters{};
    parameters.private_data = &answer;
    parameters.private_data_len = sizeof answer;
    parameters.responder_resources = reads;
    parameters.rnr_retry_count = kReceiverNotReadyRetries;
    return check(rdma_accept(id_.get(), &parameters), "rdma_accept");
  }

  void refuse(Refusal refusal) override { (void)rdma_reject(id_.get(), &refusal, sizeof refusal); }
  void disconnect() override { (void)rdma_disconnect(id_.get()); }

  void on_event(rdma_cm_event_type type, int status, std::vector<std::byte> private_data) {
    switch (type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (rdma_resolve_route(id_.get(), kResolveMilliseconds) != 0) {
          const int error = errno;
          tell({.type = EventType::kFailed,
                .reason = fmt::format("rdma_resolve_route: {}", std::strerror(error))});
        }
        return;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return tell({.type = EventType::kRouteFound});
      case RDMA_CM_EVENT_ESTABLISHED:
        return tell({.type = EventType::kEstablished, .private_data = std::move(private_data)});
      case RDMA_CM_EVENT_DISCONNECTED:
        return tell({.type = EventType::kEnded, .reason = describe(type, status)});
      case RDMA_CM_EVENT_REJECTED:
        return tell({.type = EventType::kRefused,
                     .reason = describe(type, status),
                     .is_final = status == kNoListener ||
                                 (status == kRefused && !is_for_now(private_data))});
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        return tell({.type = EventType::kDeviceGone,
                     .reason = fmt::format("the RDMA device {} was removed",
                                           ibv_get_device_name(id_.get()->verbs->device))});
      case RDMA_CM_EVENT_ADDR_CHANGE:
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return;
      default:
        return tell({.type = EventType::kFailed, .reason = describe(type, status)});
    }
  }

 private:
  static constexpr int kResolveMilliseconds = static_cast<int>(kResolveTimeout.count());

  // The endpoint may destroy this session.
  void tell(const Event& event) {
    if (endpoint_ != nullptr) endpoint_->on_event(event);
  }

  void set_option(int option, std::uint8_t value) {
    (void)rdma_set_option(id_.get(), RDMA_OPTION_ID, option, &value, sizeof value);
  }

  CmId id_;
  const Delivery delivery_;
  const std::string from_;
  const PortAddress to_;
};

}  // namespace

Result<std::unique_ptr<EventChannel>> EventChannel::create() {
  rdma_event_channel* const made = rdma_create_event_channel();
  if (made == nullptr) {
    const int error = errno;
    return Status::from_errno(
        "rdma_create_event_channel (module rdma_ucm, access to /dev/infiniband/rdma_cm)", error);
  }
  std::unique_ptr<EventChannel> channel(new EventChannel(made));
  DUNLIN_TRY(set_nonblocking(made->fd));
  return channel;
}

Result<CmId> CmId::create(const EventChannel& channel) {
  rdma_cm_id* made = nullptr;
  DUNLIN_TRY(
      check(rdma_create_id(channel.handle(), &made, nullptr, RDMA_PS_TCP), "rdma_create_id"));
  return CmId(made);
}

CmId::~CmId() {
  if (handle_ == nullptr) return;
  if (handle_->qp != nullptr) rdma_destroy_qp(handle_);
  rdma_destroy_id(handle_);
}

CmConnector::CmConnector(std::unique_ptr<EventChannel> channel, CmId listener, std::string ip,
                         std::size_t port, const Delivery& delivery, OnRequest on_request)
    : channel_(std::move(channel)),
      listener_(std::move(listener)),
      ip_(std::move(ip)),
      port_(port),
      delivery_(delivery),
      on_request_(std::move(on_request)) {}

Result<std::unique_ptr<CmConnector>> CmConnector::create(const std::string& ip, std::size_t port,
                                                         int backlog, const Delivery& delivery,
                                                         OnRequest on_request) {
  DUNLIN_ASSIGN(auto channel, EventChannel::create());
  DUNLIN_ASSIGN(CmId listener, CmId::create(*channel));
  DUNLIN_ASSIGN(SocketAddress local, SocketAddress::parse(ip, 0));
  DUNLIN_TRY(check(rdma_bind_addr(listener.get(), local.get()), "rdma_bind_addr " + ip));
  if (listener.get()->verbs == nullptr)
    return Status(Code::kUnavailable, fmt::format("{} belongs to no RDMA device", ip));
  DUNLIN_TRY(check(rdma_listen(listener.get(), backlog), "rdma_listen"));
  return std::unique_ptr<CmConnector>(new CmConnector(std::move(channel), std::move(listener), ip,
                                                      port, delivery, std::move(on_request)));
}

std::uint16_t CmConnector::ip_port() const {
  return ntohs(rdma_get_src_port(listener_.get()));
}

Result<std::unique_ptr<Session>> CmConnector::open(Rank, const Address& address, std::size_t port) {
  DUNLIN_ASSIGN(CmId id, CmId::create(*channel_));
  auto session = std::make_unique<CmSession>(std::move(id), delivery_, ip_, address.ports[port]);
  session->set_traffic_class();
  return std::unique_ptr<Session>(std::move(session));
}

void CmConnector::take_events() {
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel_->handle(), &event) == 0) {
    const auto* const data = static_cast<const std::byte*>(event->param.conn.private_data);
    const std::size_t size = data == nullptr ? 0 : event->param.conn.private_data_len;
    std::vector<std::byte> copy(data, data + size);
    rdma_cm_id* const id = event->id;
    const rdma_cm_event_type type = event->event;
    const int status = event->status;
    const std::uint8_t reads = event->param.conn.responder_resources;
    rdma_ack_cm_event(event);
    dispatch(id, type, status, std::move(copy), reads);
  }
}

void CmConnector::dispatch(rdma_cm_id* id, rdma_cm_event_type type, int status,
                           std::vector<std::byte> private_data, std::uint8_t reads) {
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
    id->context = nullptr;  // it was copied from the listener's
    on_request_(std::make_unique<CmSession>(CmId(id), delivery_, ip_, PortAddress()), port_,
                private_data, reads);
  } else if (id != listener_.get() && id->context != nullptr) {
    static_cast<CmSession*>(id->context)->on_event(type, status, std::move(private_data));
  }
}

}  // namespace dunlin::transport::verbs
