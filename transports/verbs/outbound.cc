#include "transports/verbs/outbound.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/log.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/device.h"
#include "transports/verbs/engine.h"

namespace dunlin::transport::verbs {
namespace {

// Receive work requests for returning credits: a mailbox of n slots reports every n / 2 (at least
// one), so that at most three reports can be unread at a time.
constexpr std::uint32_t kCreditReceives = 4;

// Reasons of the connection manager for a rejection (InfiniBand specification, volume 1, 12.6.7.2).
constexpr int kNobodyListens = 8;
constexpr int kRefused = 28;

ibv_wr_opcode opcode_of(Action action) {
  switch (action) {
    case Action::kWrite:
      return IBV_WR_RDMA_WRITE;
    case Action::kFlush:
    case Action::kRead:
      return IBV_WR_RDMA_READ;
    case Action::kFetchAdd:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case Action::kCompareSwap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
  }
  return IBV_WR_RDMA_WRITE;
}

}  // namespace

// Work requests that are posted by one call. The last one's end marks all of them.
struct Outbound::Chain {
  ibv_send_wr requests[kBatch];
  ibv_sge pieces[kBatch];
  std::uint32_t size = 0;

  ibv_send_wr& add(std::uint64_t number, ibv_wr_opcode opcode, std::uint64_t local,
                   std::uint32_t length, std::uint32_t key) {
    ibv_send_wr& request = requests[size];
    request = {};
    pieces[size] = {local, length, key};
    request.wr_id = number;
    request.sg_list = &pieces[size];
    request.num_sge = length == 0 ? 0 : 1;
    request.opcode = opcode;
    if (size > 0) requests[size - 1].next = &request;
    ++size;
    return request;
  }
};

void Operation::rewind() {
  has_bytes_left = moves_bytes && !is_short && !is_done;
  has_record_left = notifies && !is_done;
  posted = 0;
  record = 0;
  last_request = 0;
}

Outbound::Outbound(Engine& engine, Rank peer, LaneKind kind)
    : engine_(engine), peer_(peer), kind_(kind), depth_(engine.queue_depth()) {}

Outbound::~Outbound() {
  fail(Status(Code::kClosed, "the transport was closed").with_peer(peer_));
}

// Connecting -------------------------------------------------------------------------------------

void Outbound::set_state(State state) {
  const auto is_restless = [](State one) {
    return one == State::kConnecting || one == State::kLost;
  };
  engine_.count_restless(static_cast<int>(is_restless(state)) -
                         static_cast<int>(is_restless(state_)));
  state_ = state;
}

Status Outbound::connect(const Address& address) {
  address_ = address;
  DUNLIN_TRY(allocate());
  DUNLIN_TRY(begin());
  engine_.drain([this] { return has_route_ || !failure_.is_ok(); }, 2 * kResolveTimeout);
  if (has_route_ && failure_.is_ok()) return Status::ok();
  return Status(Code::kUnavailable,
                fmt::format("no way from {} to {}: {}", engine_.address().ip, address.ip,
                            failure_.is_ok() ? "no answer" : failure_.message()))
      .with_peer(peer_);
}

Status Outbound::allocate() {
  ring_ = std::make_unique<Operation[]>(depth_);
  MemoryRegion::Options options;
  options.huge_pages = false;
  options.name = "dunlin-records";
  DUNLIN_ASSIGN(memory_, MemoryRegion::allocate((depth_ + 1) * sizeof(Record), options));
  DUNLIN_ASSIGN(key_, MemoryKey::create(engine_.domain(), *memory_));
  records_ = reinterpret_cast<Record*>(memory_->data());
  return Status::ok();
}

Status Outbound::begin() {
  DUNLIN_ASSIGN(id_, CmId::create(engine_.events()));
  id_->handle()->context = static_cast<Endpoint*>(this);
  id_->set_ack_timeout(kAckTimeout);
  DUNLIN_ASSIGN(SocketAddress from, SocketAddress::parse(engine_.address().ip, 0));
  DUNLIN_ASSIGN(SocketAddress to, SocketAddress::parse(address_.ip, address_.port));
  has_route_ = false;
  if (rdma_resolve_addr(id_->handle(), from.get(), to.get(),
                        static_cast<int>(kResolveTimeout.count())) != 0) {
    return Status::from_errno("rdma_resolve_addr " + address_.ip, errno);
  }
  set_state(State::kConnecting);
  return Status::ok();
}

ibv_qp_cap Outbound::room() const {
  return {static_cast<std::uint32_t>(depth_), kCreditReceives, 1, 1, kInlineWanted};
}

Status Outbound::make_queue_pair() {
  DUNLIN_TRY(engine_.make_queue_pair(*id_, kind_, room(), *this));
  ibv_qp_attr current{};
  ibv_qp_init_attr granted{};
  if (const int error = ibv_query_qp(id_->queue_pair(), &current, IBV_QP_CAP, &granted); error != 0)
    return Status::from_errno("ibv_query_qp", error);
  inline_limit_ = granted.cap.max_inline_data;
  signal_every_ = std::clamp(static_cast<std::uint32_t>(depth_ / 4), 1U, kSignalEvery);
  for (std::uint32_t i = 0; i < kCreditReceives; ++i) DUNLIN_TRY(id_->post_receive());
  return Status::ok();
}

Status Outbound::request_connection() {
  Request request{};
  request.token = address_.token;
  request.source = static_cast<std::uint32_t>(engine_.context().self.value());
  request.version = kWireVersion;
  request.lane = kind_;
  request.is_resumed = was_connected_ ? 1 : 0;
  rdma_conn_param parameters{};
  parameters.private_data = &request;
  parameters.private_data_len = sizeof request;
  parameters.initiator_depth = engine_.reads();
  parameters.retry_count = kRetryCount;
  parameters.rnr_retry_count = kReceiverNotReadyRetries;
  if (rdma_connect(id_->handle(), &parameters) == 0) return Status::ok();
  return Status::from_errno("rdma_connect", errno);
}

Status Outbound::establish(const CmEvent& event) {
  // Providers may pad the private data.
  if (event.private_data.size() < sizeof answer_)
    return {Code::kCorrupted, "the peer's answer is cut short"};
  std::memcpy(&answer_, event.private_data.data(), sizeof answer_);
  const bool is_sane = answer_.version == kWireVersion && answer_.slots != 0 &&
                       answer_.taken >= taken_ && answer_.taken <= notified_;
  if (!is_sane) return {Code::kCorrupted, "the peer's answer is malformed"};
  if (was_connected_) {
    DUNLIN_INFO("the {} connection to rank {} is back after {:.1f} s", to_string(kind_),
                peer_.value(), to_seconds(engine_.context().clock.now() - lost_at_));
  }
  set_state(State::kConnected);
  was_connected_ = true;
  patience_ = kFirstAttempt;
  resume();
  return Status::ok();
}

// Operations are carried out in order: the peer has taken a record, so all before it have landed.
void Outbound::resume() {
  returned_ = last_signaled_ = requested_;
  std::uint64_t arrived = head_;
  for (std::uint64_t position = head_; position != unposted_; ++position) {
    const std::uint64_t record = at(position).record;
    if (record != 0 && record <= answer_.taken) arrived = position + 1;
  }
  for (std::uint64_t position = head_; position != tail_; ++position) {
    settle(at(position), position < arrived);
  }
  while (head_ != tail_ && at(head_).is_done) ++head_;
  unposted_ = head_;
  notified_ = taken_ = answer_.taken;
  completed_before_ = completed_;
  send_waiting_services();
  pump();
}

void Outbound::settle(Operation& operation, bool has_arrived) {
  const bool was_posted = operation.last_request != 0;
  if (operation.is_atomic() && was_posted) {
    finish(operation, Status(Code::kIoError,
                             fmt::format("{}: the connection was lost meanwhile; it may have been "
                                         "carried out or not",
                                         operation.name))
                          .with_peer(peer_));
  } else if (has_arrived && operation.action != Action::kRead) {
    finish(operation, Status::ok());
  }
  operation.rewind();
}

void Outbound::on_event(const CmEvent& event) {
  const auto describe = [&] {
    return fmt::format(
        "{} connection: {} ({})", to_string(kind_), rdma_event_str(event.type),
        event.status < 0 ? std::strerror(-event.status) : fmt::format("reason {}", event.status));
  };
  Status status;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(id_->handle(), static_cast<int>(kResolveTimeout.count())) != 0)
        status = Status::from_errno("rdma_resolve_route", errno);
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      has_route_ = true;
      status = make_queue_pair();
      if (status.is_ok()) status = request_connection();
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      status = establish(event);
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      // What the peer has taken before it went has completed.
      engine_.take_all_completions();
      if (state_ != State::kConnected) return;
      status = {Code::kPeerDead, describe()};
      break;
    case RDMA_CM_EVENT_REJECTED:
      status = {Code::kPeerDead, was_connected_ ? "the peer has closed its end" : describe()};
      if (event.status == kNobodyListens || event.status == kRefused)
        return fail(std::move(status).with_peer(peer_));
      break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      fail(
          Status(Code::kUnavailable, fmt::format("the RDMA device {} was removed",
                                                 ibv_get_device_name(id_->handle()->verbs->device)))
              .with_peer(peer_));
      return;
    case RDMA_CM_EVENT_ADDR_CHANGE:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return;
    default:
      status = {Code::kPeerDead, describe()};
      break;
  }
  if (!status.is_ok()) lose(std::move(status).with_peer(peer_));
}

// Losing and ending ------------------------------------------------------------------------------

void Outbound::lose(Status why) {
  if (state_ == State::kOver) return;
  const TimePoint now = engine_.context().clock.now();
  if (state_ == State::kConnected) {
    DUNLIN_INFO("lost the {} connection to rank {}: {}; connecting again", to_string(kind_),
                peer_.value(), why.message());
    lost_at_ = now;
    loss_ = why;
    fruitless_ = completed_ == completed_before_ ? fruitless_ + 1 : 0;
  } else {
    DUNLIN_DEBUG("no {} connection to rank {} yet: {}", to_string(kind_), peer_.value(),
                 why.message());
  }
  const bool is_pointless = !was_connected_ || fruitless_ > kFruitlessConnections ||
                            !engine_.context().peers.is_present(peer_) ||
                            now - lost_at_ > engine_.context().config.deadline;
  if (is_pointless) {
    const Status& cause = was_connected_ ? loss_ : why;
    return fail(Status(Code::kPeerDead, std::string(cause.message())).with_peer(peer_));
  }
  drop_connection();
  next_step_ = now + kReconnectPause;
  set_state(State::kLost);
}

void Outbound::step(TimePoint now) {
  if (!was_connected_ || now < next_step_) return;
  Status status;
  if (state_ == State::kLost) {
    next_step_ = now + patience_;
    status = begin();
  } else if (state_ == State::kConnecting) {
    // The connection manager repeats a lost request too, but after four seconds only.
    patience_ = std::min(2 * patience_, kLongestAttempt);
    status = {Code::kPeerDead, "no answer"};
  }
  if (!status.is_ok()) lose(std::move(status).with_peer(peer_));
}

void Outbound::probe() {
  if (state_ != State::kConnected || is_empty() || last_signaled_ > returned_) return;
  Chain chain;
  chain.add(++requested_, IBV_WR_RDMA_WRITE, 0, 0, 0).send_flags = IBV_SEND_SIGNALED;
  last_signaled_ = requested_;
  if (Status status = post(chain); !status.is_ok()) lose(std::move(status).with_peer(peer_));
}

// The NIC lets go of everything.
void Outbound::drop_connection() {
  if (!id_) return;
  engine_.detach(*id_, kind_, room());
  id_.reset();
}

void Outbound::fail(Status why) {
  if (state_ == State::kOver) return;
  set_state(State::kOver);
  failure_ = std::move(why);
  services_.clear();
  drop_connection();
  unposted_ = tail_;
  while (head_ != tail_) finish(at(head_++), failure_);
}

void Outbound::shut(Status why) {
  const auto is_over = [this] {
    post_fence();  // once there is room
    return is_empty();
  };
  engine_.drain(is_over, kCloseGrace);
  if (!is_empty()) fail(std::move(why));
}

// Operations -------------------------------------------------------------------------------------

std::optional<AtomicScope> Outbound::atomics() const {
  return engine_.address().atomics ? address_.atomics : std::nullopt;
}

Operation* Outbound::claim() {
  if (tail_ - head_ == depth_) return nullptr;
  Operation& operation = at(tail_);
  operation = Operation{};
  return &operation;
}

void Outbound::announce(Operation& operation, const Notification& notification) {
  operation.notifies = true;
  operation.cell = static_cast<std::uint32_t>(notification.id);
  records_[tail_ % depth_].set(notification);
  if (operation.cell >= sequences_.size()) sequences_.resize(operation.cell + 1);
  std::uint64_t& last = sequences_[operation.cell];
  const auto short_form = ShortForm::of(notification, last, operation.size);
  operation.is_short = short_form && operation.size <= engine_.longest_message();
  if (operation.is_short) operation.immediate = short_form->encode();
  last = notification.sequence;
}

void Outbound::receive_former(Operation& operation) {
  operation.local = reinterpret_cast<std::uint64_t>(records_ + tail_ % depth_);
  operation.local_key = key_->local();
  operation.size = sizeof(std::uint64_t);
  operation.moves_bytes = true;
}

void Outbound::spell_out() {
  std::fill(sequences_.begin(), sequences_.end(), UINT64_MAX);
  for (std::uint64_t position = head_; position != tail_; ++position) {
    at(position).is_short = false;
  }
}

void Outbound::launch() {
  at(tail_).rewind();
  ++tail_;
  pump();
}

void Outbound::send_service(std::uint32_t immediate, std::uint64_t number) {
  if (state_ == State::kOver) return;
  services_.emplace_back(immediate, number);
  send_waiting_services();
}

void Outbound::send_waiting_services() {
  std::size_t sent = 0;
  for (; sent < services_.size(); ++sent) {
    Operation* const operation = claim();
    if (operation == nullptr) break;
    operation->name = "message";
    operation->notifies = true;
    operation->cell = services_[sent].first;
    records_[tail_ % depth_].set({NotifyId{}, services_[sent].second, 0, 0, {}});
    at(tail_++).rewind();
  }
  services_.erase(services_.begin(), services_.begin() + static_cast<std::ptrdiff_t>(sent));
  if (sent != 0) pump();
}

void Outbound::post_fence() {
  if (is_empty() || at(tail_ - 1).is_signaled) return;
  Operation* const operation = claim();
  if (operation == nullptr) return;
  operation->name = "fence";
  operation->moves_bytes = true;
  operation->is_signaled = true;
  launch();
}

void Outbound::pump() {
  while (state_ == State::kConnected && unposted_ != tail_) {
    Chain chain;
    while (unposted_ != tail_ && chain.size < kBatch &&
           add_request(chain, at(unposted_), unposted_)) {
      if (at(unposted_).last_request != 0) ++unposted_;
    }
    if (chain.size == 0) return;
    if (Status status = post(chain); !status.is_ok()) lose(std::move(status).with_peer(peer_));
  }
}

bool Outbound::add_request(Chain& chain, Operation& operation, std::uint64_t position) {
  if (requested_ - returned_ == depth_) return false;
  if (operation.has_bytes_left) {
    add_bytes(chain, operation);
  } else if (operation.has_record_left) {
    if (notified_ - taken_ == answer_.slots) return false;
    add_notification(chain, operation, position);
  } else {
    // Was refused by the peer, over a connection that is no more: a request that does nothing keeps
    // its place in the order.
    chain.add(++requested_, IBV_WR_RDMA_WRITE, 0, 0, 0);
  }
  const bool is_last = !operation.has_bytes_left && !operation.has_record_left;
  if (is_last) operation.last_request = requested_;
  const bool is_full = requested_ - returned_ == depth_;
  if ((is_last && operation.is_signaled) || is_full ||
      requested_ - last_signaled_ >= signal_every_) {
    chain.requests[chain.size - 1].send_flags |= IBV_SEND_SIGNALED;
    last_signaled_ = requested_;
  }
  return true;
}

void Outbound::add_bytes(Chain& chain, Operation& operation) {
  const auto length = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(operation.size - operation.posted, engine_.longest_message()));
  ibv_send_wr& request = chain.add(++requested_, opcode_of(operation.action),
                                   operation.local + operation.posted, length, operation.local_key);
  aim(request, operation);
  const bool can_be_inline = operation.action == Action::kWrite && length != 0;
  if (can_be_inline && length <= inline_limit_) request.send_flags |= IBV_SEND_INLINE;
  operation.posted += length;
  operation.has_bytes_left = operation.posted != operation.size;
}

void Outbound::aim(ibv_send_wr& request, const Operation& operation) const {
  if (operation.is_atomic()) {
    request.wr.atomic = {operation.remote, operation.operand, operation.desired,
                         operation.remote_key};
  } else if (operation.action == Action::kFlush) {
    // The answer comes after everything before it is in memory.
    *request.sg_list = {reinterpret_cast<std::uint64_t>(records_ + depth_),
                        static_cast<std::uint32_t>(operation.size), key_->local()};
    request.wr.rdma = {answer_.mailbox_address, answer_.mailbox_key};
  } else {
    request.wr.rdma = {operation.remote + operation.posted, operation.remote_key};
  }
}

void Outbound::add_notification(Chain& chain, Operation& operation, std::uint64_t position) {
  const Record& record = records_[position % depth_];
  const std::uint64_t slot = notified_++ % answer_.slots;
  const bool is_short = operation.is_short;
  const auto length = static_cast<std::uint32_t>(is_short ? operation.size : record.wire_size());
  ibv_send_wr& request =
      chain.add(++requested_, IBV_WR_RDMA_WRITE_WITH_IMM,
                is_short ? operation.local : reinterpret_cast<std::uint64_t>(&record), length,
                is_short ? operation.local_key : key_->local());
  if (is_short) {
    request.wr.rdma = {operation.remote, operation.remote_key};
  } else {
    request.wr.rdma = {answer_.mailbox_address + slot * sizeof(Record), answer_.mailbox_key};
  }
  request.imm_data = htonl(is_short ? operation.immediate : operation.cell);
  if (length != 0 && length <= inline_limit_) request.send_flags |= IBV_SEND_INLINE;
  operation.record = notified_;
  operation.has_record_left = false;
}

Status Outbound::post(Chain& chain) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(id_->queue_pair(), chain.requests, &bad);
  return error == 0 ? Status::ok() : Status::from_errno("ibv_post_send", error);
}

void Outbound::on_completion(const ibv_wc& completion) {
  const bool is_receive = completion.wr_id == 0;
  if (completion.status != IBV_WC_SUCCESS) {
    if (!is_receive) on_failed_request(completion);
    return;  // receives come back with the requests, of a queue pair that is broken
  }
  if (is_receive) {
    const std::uint32_t told = ntohl(completion.imm_data);
    taken_ += told - static_cast<std::uint32_t>(taken_);
    if (Status status = id_->post_receive(); !status.is_ok())
      return lose(std::move(status).with_peer(peer_));
  } else {
    retire(completion.wr_id);
  }
  pump();
}

// Those before it have been carried out; it and all behind it haven't, or not for sure.
void Outbound::on_failed_request(const ibv_wc& completion) {
  retire(completion.wr_id - 1);
  Status status = to_status(head_ == tail_ ? "probe" : at(head_).name, completion).with_peer(peer_);
  if (is_refusal(completion) && head_ != tail_) {
    finish(at(head_), status);
    spell_out();
  }
  lose(std::move(status));
}

void Outbound::retire(std::uint64_t request) {
  returned_ = std::max(returned_, request);
  while (head_ != unposted_ && at(head_).last_request != 0 && at(head_).last_request <= returned_) {
    finish(at(head_++), Status::ok());
  }
  if (!services_.empty()) send_waiting_services();
}

void Outbound::finish(Operation& operation, const Status& status) {
  if (std::exchange(operation.is_done, true)) return;
  ++completed_;
  Completion* const completion = std::exchange(operation.completion, nullptr);
  const bool is_remote_flush = operation.action == Action::kFlush;
  if (operation.is_atomic() && operation.before != nullptr && status.is_ok())
    std::memcpy(operation.before, reinterpret_cast<const void*>(operation.local),
                sizeof(std::uint64_t));
  if (!status.is_ok() && completion == nullptr && refusal_.is_ok()) refusal_ = status;
  if (completion == nullptr) return;
  completion->fire(status.is_ok() && is_remote_flush ? std::move(refusal_) : status);
}

}  // namespace dunlin::transport::verbs
