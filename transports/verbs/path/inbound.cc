#include "transports/verbs/path/inbound.h"

#include <arpa/inet.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/log.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/engine.h"

namespace dunlin::transport::verbs {
namespace {

// Work requests that return credits: one is on the wire, and another may be posted while the
// completion of the last one is unread.
constexpr std::uint32_t kSendSlots = 2;
// The wr_id of a work request that returns credits; receives have 0.
constexpr std::uint64_t kCreditRequest = 1;

}  // namespace

Inbound::Inbound(Engine& engine, Port& port, Rank peer, LaneKind kind, std::uint8_t rail)
    : engine_(engine),
      port_(port),
      peer_(peer),
      kind_(kind),
      rail_(rail),
      slots_(rail == 0 ? engine.queue_depth() : 1),
      share_(engine.peers_share()) {}

Inbound::~Inbound() {
  drop_connection();
}

Status Inbound::make_mailbox() {
  MemoryRegion::Options options;
  options.huge_pages = false;
  options.is_private = true;
  options.name = "dunlin-mailbox";
  DUNLIN_ASSIGN(memory_, MemoryRegion::allocate((slots_ + 1) * sizeof(Record), options));
  DUNLIN_ASSIGN(key_, MemoryKey::create(port_.domain(), *memory_));
  return Status::ok();
}

Status Inbound::accept(std::unique_ptr<Session> session, const Request& request,
                       std::uint8_t reads) {
  if (!damage_.is_ok()) {
    session->refuse(Session::Refusal::kForGood);
    return damage_;
  }
  drop_connection();
  // A request that resumes nothing is the first one: the count begins anew.
  if (request.is_resumed == 0) taken_ = 0;
  if (request.is_resumed != 0) engine_.refresh(port_);
  told_ = taken_;
  is_broken_ = is_returning_ = is_leaving_ = has_asked_ = has_arrivals_ = false;
  session_ = std::move(session);
  session_->attach(*this);
  last_use_ = share_.next_use();
  share_.add(*this);
  Status status = make_mailbox();
  if (status.is_ok()) status = make_queue_pair();
  if (status.is_ok()) status = send_answer(reads);
  if (!status.is_ok()) {
    session_->refuse(Session::Refusal::kForNow);
    drop_connection();
  }
  return status;
}

void Inbound::drop_connection() {
  if (!session_) return;
  if (session_->queue_pair() != nullptr) {
    // In the error state nothing more arrives. The completions of what has arrived come first, and
    // then those of the flushed work requests.
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    (void)ibv_modify_qp(session_->queue_pair(), &attributes, IBV_QP_STATE);
    is_broken_ = true;
    engine_.drain_completions([this] { return posted_ == 0; }, kFlushGrace);
  }
  port_.detach(*session_, kind_, room());
  session_.reset();
  posted_ = to_replace_ = 0;
  key_.reset();
  memory_.reset();
  cells_.clear();
  share_.remove(*this);
}

ibv_qp_cap Inbound::room() const {
  return {kSendSlots, slots_, 1, 1, 0};
}

Status Inbound::make_queue_pair() {
  DUNLIN_TRY(port_.make_queue_pair(*session_, kind_, room(), *this));
  return post_receives(slots_);
}

Status Inbound::post_receives(std::uint32_t count) {
  for (; count > 0; --count) {
    DUNLIN_TRY(session_->post_receive());
    ++posted_;
  }
  return Status::ok();
}

Status Inbound::send_answer(std::uint8_t reads) {
  Answer answer{};
  answer.mailbox_address = reinterpret_cast<std::uint64_t>(memory_->data());
  answer.taken = taken_;
  answer.mailbox_key = key_->remote();
  answer.slots = slots_;
  answer.version = kWireVersion;
  return session_->accept(answer, std::min(reads, port_.reads()));
}

void Inbound::on_event(const Event& event) {
  // If the peer comes back, it uses another connection.
  if (event.type != EventType::kEstablished) give_up();
  if (event.type == EventType::kEnded) drop_connection();
}

void Inbound::give_up() {
  if (is_broken_ || !session_) return;
  is_broken_ = true;
  session_->disconnect();
}

// Flat, as Outbound::pump() is.
[[gnu::hot, gnu::flatten]] void Inbound::on_completion(const ibv_wc& completion) {
  const bool is_receive = completion.wr_id == 0;
  if (is_receive) --posted_;
  if (completion.status != IBV_WC_SUCCESS) return give_up();
  if (is_receive) {
    take(completion);
  } else {
    is_returning_ = false;
  }
  return_credits();
}

void Inbound::take(const ibv_wc& completion) {
  if (!damage_.is_ok()) return;
  last_use_ = share_.next_use();
  has_arrivals_ = true;
  const std::uint64_t number = taken_++;
  ++to_replace_;
  const std::uint32_t immediate = ntohl(completion.imm_data);
  if (const auto form = ShortForm::decode(immediate)) return take_short(*form, completion.byte_len);
  Record record;  // a copy: the peer can write to the slot
  std::memcpy(&record, memory_->data() + number % slots_ * sizeof(Record), sizeof record);
  take_record(immediate, record, completion.byte_len);
}

void Inbound::take_short(const ShortForm& form, std::uint32_t bytes) {
  const auto notification = cells_.expand(form, bytes);
  if (!notification) {
    DUNLIN_WARN("dropped a notification from rank {}: no cell has the number {}", peer_.value(),
                form.number);
    return;
  }
  publish(form.number, *notification);
}

void Inbound::take_record(std::uint32_t immediate, const Record& record, std::size_t size) {
  const auto notification = record.notification(immediate, size);
  if (!notification) {
    DUNLIN_WARN("dropped a malformed notification from rank {}", peer_.value());
  } else if (immediate >= kServiceImmediate) {
    take_service(immediate, record);
  } else {
    publish(record.number, *notification);
  }
}

void Inbound::take_service(std::uint32_t immediate, const Record& record) {
  damage_ = engine_.on_service(peer_, immediate, record);
  if (!damage_.is_ok()) {
    DUNLIN_ERROR("a put of rank {} cannot be made visible, so nothing more is taken from it: {}",
                 peer_.value(), damage_.to_string());
    return give_up();
  }
  if (immediate != kLanded) return;
  // The peer's device may read the word at any time.
  auto* const landed = reinterpret_cast<std::uint64_t*>(memory_->data() + slots_ * sizeof(Record));
  std::atomic_ref(*landed).store(taken_, std::memory_order_release);
}

void Inbound::publish(std::uint16_t number, const Notification& notification) {
  NotifyBoard& board = engine_.context().board;
  const auto cell = static_cast<std::size_t>(notification.id);
  if (cell >= board.size()) {
    DUNLIN_WARN("dropped a notification from rank {}: it is for cell {}, but there are {}",
                peer_.value(), cell, board.size());
    cells_.unname(number);
    return;
  }
  cells_.note(number, notification);
  board.cell(notification.id).publish(notification);
}

void Inbound::look_for_hang(TimePoint now) {
  if (!is_returning_ || is_broken_) return watch_.rest();
  const std::uint64_t told = told_;
  const Duration silence = watch_.look(told, now);
  if (!Engine::has_hung(session_->queue_pair(), silence, 0)) return;
  engine_.take_all_completions();  // perhaps nobody has looked
  if (!is_returning_ || is_broken_ || told_ != told) return;
  DUNLIN_WARN("the queue pair to rank {} has hung: credits have been on their way for {:.0f} s",
              peer_.value(), to_seconds(silence));
  give_up();
}

bool Inbound::begin_to_leave() {
  // The queue pair of a peer that has not heard of the answer yet cannot be written to.
  if (!is_connected() || !has_arrivals_) return false;
  is_leaving_ = true;
  return_credits();
  return true;
}

// Returns half a mailbox at a time, so that the sender can go on with the other half meanwhile.
void Inbound::return_credits() {
  const std::uint64_t worth = std::max(1U, slots_ / 2);
  const bool asks = is_leaving_ && !has_asked_;
  if (is_returning_ || is_broken_ || (taken_ - told_ < worth && !asks)) return;
  // A slot is free only once its receive work request is posted again.
  Status status = post_receives(std::exchange(to_replace_, 0));
  ibv_send_wr request{};
  request.wr_id = kCreditRequest;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  const Credit credit{static_cast<std::uint32_t>(taken_), asks};
  request.imm_data = htonl(credit.encode());
  ibv_send_wr* bad = nullptr;
  if (status.is_ok()) {
    const int error = ibv_post_send(session_->queue_pair(), &request, &bad);
    if (error != 0) status = Status::from_errno("ibv_post_send", error);
  }
  if (!status.is_ok()) {
    DUNLIN_WARN("cannot return credits to rank {}: {}", peer_.value(), status.to_string());
    return give_up();
  }
  told_ = taken_;
  is_returning_ = true;
  has_asked_ = is_leaving_;
}

}  // namespace dunlin::transport::verbs
