#include "transports/verbs/connect/mail_connector.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/log.h"
#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {
namespace {

constexpr const char* kClosed = "the peer has closed its end";

template <typename T>
std::vector<std::byte> bytes_of(const T& value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  return {begin, begin + sizeof value};
}

}  // namespace

class MailSession final : public Session {
 public:
  using Name = MailConnector::Name;

  // `port`: its index at both ends. `peer_end`: the queue pair at the end that has asked; not used
  // by the session that asks.
  MailSession(MailConnector& connector, const Name& name, std::size_t port, Rank peer,
              std::uint64_t peer_token, const QueuePairPlace& peer_end)
      : connector_(connector),
        name_(name),
        port_index_(port),
        port_(connector.ports_[port]),
        peer_(peer),
        peer_token_(peer_token),
        peer_end_(peer_end) {
    connector_.sessions_[name_] = this;
  }

  ~MailSession() override {
    connector_.sessions_.erase(name_);
    disconnect();
    if (queue_pair_ != nullptr) ibv_destroy_qp(queue_pair_);
  }

  Status create_queue_pair(const ProtectionDomain& domain, ibv_qp_init_attr attributes) override {
    queue_pair_ = ibv_create_qp(domain.handle(), &attributes);
    if (queue_pair_ == nullptr) return Status::from_errno("ibv_create_qp", errno);
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_INIT;
    change.port_num = port_.number;
    change.pkey_index = port_.pkey_index;
    change.qp_access_flags = static_cast<unsigned>(domain.access()) & ~IBV_ACCESS_LOCAL_WRITE;
    Status status =
        modify(change, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (!status.is_ok()) ibv_destroy_qp(std::exchange(queue_pair_, nullptr));
    return status;
  }

  Status find_route() override {
    connector_.routed_.push_back(name_);
    return Status::ok();
  }

  Status request(const Request& request, std::uint8_t reads) override {
    reads_ = reads;
    is_known_to_peer_ = awaits_answer_ = true;
    send({.kind = MessageKind::kRequest,
          .place = own_place(),
          .reads = reads,
          .private_data = bytes_of(request)});
    return Status::ok();
  }

  Status accept(const Answer& answer, std::uint8_t reads) override {
    DUNLIN_TRY(connect_queue_pair(0, reads));
    is_known_to_peer_ = true;
    send({.kind = MessageKind::kAnswer,
          .place = own_place(),
          .reads = reads,
          .private_data = bytes_of(answer)});
    return Status::ok();
  }

  void refuse(Refusal refusal) override {
    send({.kind = MessageKind::kRefusal, .is_final = refusal == Refusal::kForGood});
  }

  void disconnect() override {
    if (std::exchange(is_known_to_peer_, false)) send({.kind = MessageKind::kEnd});
  }

  // The other end's answer.
  void on_answer(const ConnectionMessage& message) {
    if (!std::exchange(awaits_answer_, false)) return;
    peer_end_ = message.place;
    Status status = connect_queue_pair(std::min(reads_, message.reads), 0);
    if (!status.is_ok())
      return tell({.type = EventType::kFailed, .reason = std::string(status.message())});
    tell({.type = EventType::kEstablished, .private_data = message.private_data});
  }
  void on_refusal(std::string reason, bool is_final) {
    is_known_to_peer_ = false;
    tell({.type = EventType::kRefused, .reason = std::move(reason), .is_final = is_final});
  }
  void on_end() {
    is_known_to_peer_ = false;
    tell({.type = EventType::kEnded, .reason = "the other end has disconnected"});
  }
  void on_route() {
    if (connector_.gone_.contains(peer_token_)) return on_refusal(kClosed, true);
    tell({.type = EventType::kRouteFound});
  }

  bool is_with(Rank peer, std::uint64_t token) const {
    return peer == peer_ && token == peer_token_;
  }
  bool is_initiators() const { return name_.is_initiators; }

 private:
  // The endpoint may destroy this session.
  void tell(const Event& event) {
    if (endpoint_ != nullptr) endpoint_->on_event(event);
  }

  void send(ConnectionMessage message) {
    message.initiator = static_cast<std::uint32_t>(name_.initiator.value());
    message.port = static_cast<std::uint8_t>(port_index_);
    message.session = name_.number;
    message.is_for_initiator = !name_.is_initiators;
    connector_.send(peer_, peer_token_, message);
  }

  QueuePairPlace own_place() {
    QueuePairPlace place{};
    std::memcpy(place.gid, &port_.gid, sizeof place.gid);
    place.queue_pair = queue_pair_->qp_num;
    place.first_packet = first_packet_;
    place.lid = port_.lid;
    place.mtu = static_cast<std::uint8_t>(port_.mtu);
    return place;
  }

  Status modify(ibv_qp_attr& change, int mask) {
    const int error = ibv_modify_qp(queue_pair_, &change, mask);
    return error == 0 ? Status::ok() : Status::from_errno("ibv_modify_qp", error);
  }

  // Reads and atomics that this end, and the other end, may have outstanding.
  Status connect_queue_pair(std::uint8_t reads, std::uint8_t peer_reads) {
    const QueuePairPlace own = own_place();
    const Delivery& delivery = connector_.delivery_;
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_RTR;
    change.path_mtu = static_cast<ibv_mtu>(std::min(own.mtu, peer_end_.mtu));
    change.dest_qp_num = peer_end_.queue_pair;
    change.rq_psn = peer_end_.first_packet;
    change.max_dest_rd_atomic = peer_reads;
    change.min_rnr_timer = kReceiverNotReadyTimer;
    change.ah_attr.port_num = port_.number;
    change.ah_attr.sl = delivery.service_level;
    change.ah_attr.dlid = peer_end_.lid;
    // Within an InfiniBand subnet no global route is needed. The GIDs of a subnet share a prefix.
    const bool is_same_subnet = std::memcmp(own.gid, peer_end_.gid, 8) == 0;
    const bool needs_route = !port_.is_infiniband || !is_same_subnet || port_.needs_grh;
    change.ah_attr.is_global = needs_route ? 1 : 0;
    std::memcpy(&change.ah_attr.grh.dgid, peer_end_.gid, sizeof peer_end_.gid);
    change.ah_attr.grh.sgid_index = port_.gid_index;
    change.ah_attr.grh.hop_limit = 255;
    change.ah_attr.grh.traffic_class =
        static_cast<std::uint8_t>(std::max(delivery.traffic_class, 0));
    DUNLIN_TRY(modify(change, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                  IBV_QP_MIN_RNR_TIMER));
    change = {};
    change.qp_state = IBV_QPS_RTS;
    change.sq_psn = first_packet_;
    change.timeout = delivery.timeout;
    change.retry_cnt = delivery.retries;
    change.rnr_retry = kReceiverNotReadyRetries;
    change.max_rd_atomic = reads;
    return modify(change, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  MailConnector& connector_;
  const Name name_;
  const std::size_t port_index_;
  const LocalPort& port_;
  const Rank peer_;
  const std::uint64_t peer_token_;
  QueuePairPlace peer_end_;
  const std::uint32_t first_packet_ = randombytes_uniform(1U << 24);
  std::uint8_t reads_ = 0;
  bool is_known_to_peer_ = false;
  bool awaits_answer_ = false;
};

MailConnector::MailConnector(Mail& mail, Rank self, std::uint64_t token, const Delivery& delivery,
                             std::vector<LocalPort> ports, OnRequest on_request)
    : mail_(mail),
      self_(self),
      token_(token),
      delivery_(delivery),
      ports_(std::move(ports)),
      on_request_(std::move(on_request)) {}

MailConnector::~MailConnector() {
  for (const auto& [token, peer] : known_) send(peer, token, {.kind = MessageKind::kGone});
}

void MailConnector::send(Rank to, std::uint64_t token, const ConnectionMessage& message) {
  known_.emplace(token, to);
  mail_.send(MailTopic::kVerbs, to, message.encode(token, token_));
}

Result<std::unique_ptr<Session>> MailConnector::open(Rank peer, const Address& address,
                                                     std::size_t port) {
  const Name name{self_, next_number_++, true};
  return std::unique_ptr<Session>(
      std::make_unique<MailSession>(*this, name, port, peer, address.token, QueuePairPlace{}));
}

void MailConnector::take_events() {
  for (const Name& name : std::exchange(routed_, {})) {
    if (MailSession* const session = find(name)) session->on_route();
  }
  while (const auto message = mail_.receive(MailTopic::kVerbs)) {
    std::uint64_t to = 0;
    const auto read = ConnectionMessage::decode(message->text, to);
    if (!read) {
      DUNLIN_WARN("dropped a connection message of rank {}: {}", message->from.value(),
                  read.status().message());
    } else if (to == token_) {  // otherwise it is for a former connector of this rank
      receive(message->from, *read);
    }
  }
}

void MailConnector::receive(Rank from, const ConnectionMessage& message) {
  const Name name{Rank(static_cast<int>(message.initiator)), message.session,
                  message.is_for_initiator};
  MailSession* const session = find(name);
  if (session != nullptr && !session->is_with(from, message.sender)) return;
  switch (message.kind) {
    case MessageKind::kGone:
      return on_gone(from, message.sender);
    case MessageKind::kRequest:
      if (session != nullptr || name.is_initiators || name.initiator != from) return;
      if (message.port >= ports_.size()) {
        DUNLIN_WARN("refused a connection to rank {}: it asks for port {}, but there are {}",
                    from.value(), message.port, ports_.size());
        return;
      }
      return on_request_(std::make_unique<MailSession>(*this, name, message.port, from,
                                                       message.sender, message.place),
                         message.port, message.private_data, message.reads);
    case MessageKind::kAnswer:
      if (session != nullptr && name.is_initiators) session->on_answer(message);
      return;
    case MessageKind::kRefusal:
      if (session != nullptr && name.is_initiators)
        session->on_refusal("the peer refuses the connection", message.is_final);
      return;
    case MessageKind::kEnd:
      if (session != nullptr) session->on_end();
      return;
  }
}

void MailConnector::on_gone(Rank from, std::uint64_t token) {
  gone_.insert(token);
  std::vector<Name> names;
  for (const auto& [name, session] : sessions_) {
    if (session->is_with(from, token)) names.push_back(name);
  }
  for (const Name& name : names) {
    MailSession* const session = find(name);  // the end of one session may have destroyed another
    if (session == nullptr) continue;
    if (session->is_initiators()) {
      session->on_refusal(kClosed, true);
    } else {
      session->on_end();
    }
  }
}

MailSession* MailConnector::find(const Name& name) const {
  const auto found = sessions_.find(name);
  return found == sessions_.end() ? nullptr : found->second;
}

}  // namespace dunlin::transport::verbs
