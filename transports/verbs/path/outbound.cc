#include "transports/verbs/path/outbound.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "runtime/log.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/engine.h"
#include "transports/verbs/path/posting.h"
#include "transports/verbs/rails/rails.h"

namespace dunlin::transport::verbs {

Outbound::Outbound(Engine& engine, Port& port, Rank peer, LaneKind kind, std::uint8_t rail)
    : engine_(engine),
      port_(port),
      peer_(peer),
      rail_(rail),
      ring_(peer, engine.queue_depth(), port.longest_message()),
      window_(engine.queue_depth()),
      landings_(engine),
      connection_(engine, port, *this, peer, kind, rail),
      share_(engine.own_share()) {}

Outbound::~Outbound() {
  fail(Status(Code::kClosed, "the transport was closed").with_peer(peer_));
}

const ibv_context* Outbound::device() const {
  return port_.device();
}

std::optional<AtomicScope> Outbound::atomics() const {
  return engine_.address().atomics ? connection_.address().atomics : std::nullopt;
}

// The connection --------------------------------------------------------------------------------

Status Outbound::connect(const Address& address) {
  if (engine_.connects_at_once()) DUNLIN_TRY(allocate());
  DUNLIN_TRY(connection_.connect(address));
  if (connection_.is_at_rest()) ring_.release();
  return Status::ok();
}

Status Outbound::allocate() {
  DUNLIN_TRY(ring_.allocate(port_.domain()));
  landings_.watch(ring_.landed());
  return Status::ok();
}

Status Outbound::wake() {
  if (connection_.is_at_rest()) {
    DUNLIN_TRY(allocate().with_peer(peer_));
    connection_.want();
  }
  return failure();
}

bool Outbound::take_place() {
  if (!engine_.connects_at_once() || !share_.has_room()) return false;
  last_use_ = share_.next_use();
  share_.add(*this);
  return true;
}

void Outbound::wait_for_place() {
  last_use_ = share_.next_use();
  engine_.add_waiting(*this);
}

void Outbound::leave_place() {
  engine_.remove_from_places(*this);
}

bool Outbound::begin_to_leave() {
  if (!connection_.is_connected() || ring_.has_unposted() || !services_.empty()) return false;
  const bool is_for_first_use = rail_ == 0 && !was_used_;
  if (is_for_first_use && engine_.context().clock.now() < unused_until_) return false;
  is_leaving_ = true;
  leaving_at_ = ring_.tail();
  go_on_leaving();
  return true;
}

void Outbound::go_on_leaving() {
  if (ring_.tail() != leaving_at_ && !is_asked_) {
    is_leaving_ = false;  // it was used since
    return;
  }
  if (is_empty() && services_.empty() && !window_.awaits_completion()) {
    DUNLIN_DEBUG("rank {}: an idle connection is given up", peer_.value());
    connection_.rest();
    ring_.release();
    return;
  }
  append_fence();
  leaving_at_ = ring_.tail();
}

Status Outbound::settle(const Answer& answer) {
  if (!window_.can_resume(answer)) return {Code::kCorrupted, "the peer has lost notifications"};
  window_.resume(answer);
  landings_.restart();  // the notes that were taken have been carried out; the others come again
  ring_.settle(answer.taken);
  return Status::ok();
}

void Outbound::go_on() {
  if (!was_used_) unused_until_ = engine_.context().clock.now() + kPlaceTimeout;
  const bool may_be_asked = rail_ == 0 && !engine_.connects_at_once();
  // One that waits since an earlier connection is enough.
  const bool waits =
      ring_.holds(told_at_) || std::ranges::any_of(services_, [](const auto& service) {
        return service.first == kConnected;
      });
  if (may_be_asked && !waits) services_.emplace_back(kConnected, 0);
  send_waiting_services();
  pump();
}

void Outbound::pause() {
  is_leaving_ = is_asked_ = false;
  update_landing_wait();
}

void Outbound::lose(Status why) {
  connection_.lose(std::move(why).with_peer(peer_));
}

void Outbound::end(const Status& why) {
  services_.clear();
  if (rails_) rails_->fail(why);  // before a completion says that the buffers may be reused
  ring_.finish_all(why);
}

void Outbound::shut(Status why) {
  const auto is_over = [this] {
    append_fence();  // as soon as there is room
    return is_empty();
  };
  Duration grace = Delivery(engine_.context().config).close_grace();
  if (connection_.waits_for_place()) grace += kPlaceTimeout;
  engine_.drain(is_over, grace);
  if (!is_empty()) fail(std::move(why));
}

void Outbound::step(TimePoint now) {
  poll_landings(now);
  connection_.step(now);
}

// Posting ----------------------------------------------------------------------------------------

void Outbound::put_with_landing(const Transfer& transfer, const Landing& landing,
                                Completion* completion) {
  ring_.append_put_with_landing("put", transfer, landing, false, completion);
  pump();
}

void Outbound::put_notify_with_landing(const Transfer& transfer, const Landing& landing,
                                       const Notification& notification, Completion* completion) {
  constexpr const char* kName = "put with notification";
  ring_.append_put_with_landing(kName, transfer, landing, true, nullptr);
  ring_.append_notify(kName, notification, completion);
  pump();
}

void Outbound::put_striped(StripedPut& put, const Notification* notification,
                           Completion* completion) {
  put.position = ring_.tail();
  put.notifies = notification != nullptr;
  ring_.append_striped(notification == nullptr ? "put" : "put with notification", notification,
                       completion);
  rails_->stripes().add(put);
  pump();
}

void Outbound::read_back(std::uint64_t remote, std::uint32_t remote_key) {
  ring_.append_read_back(remote, remote_key);
  pump();
}

void Outbound::flush_local(Completion* completion) {
  ring_.append_empty("flush", completion != nullptr, completion);
  pump();
}

void Outbound::flush_remote(Completion* completion) {
  ring_.append_flush("flush", completion);
  pump();
}

void Outbound::get(const Transfer& transfer, const Sink& sink, Completion* completion) {
  ring_.append_get(transfer, sink, completion);
  pump();
}

void Outbound::atomic(const char* name, const AtomicAccess& access, Completion* completion) {
  ring_.append_atomic(name, access, completion);
  pump();
}

void Outbound::carry(const Transfer& transfer, Completion& landed) {
  ring_.append_put("put", transfer, nullptr);
  ring_.append_flush("read behind a put", &landed);
  pump();
}

void Outbound::append_fence() {
  if (is_empty() || ring_.at(ring_.tail() - 1).is_signaled || !has_room(1)) return;
  ring_.append_empty("fence", true, nullptr);
  pump();
}

void Outbound::send_service(std::uint32_t immediate, std::uint64_t number) {
  if (connection_.is_over()) return;
  services_.emplace_back(immediate, number);
  if (services_.size() > kMostWaitingServices && !connection_.is_connected())
    services_.erase(services_.begin());
  send_waiting_services();
}

void Outbound::send_waiting_services() {
  std::size_t sent = 0;
  for (; sent < services_.size() && has_room(1); ++sent) {
    if (services_[sent].first == kConnected) told_at_ = ring_.tail();
    ring_.append_service(services_[sent].first, services_[sent].second);
  }
  services_.erase(services_.begin(), services_.begin() + static_cast<std::ptrdiff_t>(sent));
  if (sent != 0) pump();
}

void Outbound::post_extra(Chain& chain) {
  chain.requests[0].send_flags = IBV_SEND_SIGNALED;
  (void)window_.must_signal(true);
  if (Status status = post(chain); !status.is_ok()) lose(std::move(status));
}

void Outbound::poll_landings(TimePoint now) {
  if (!landings_.is_poll_due(now, ring_.head(), window_)) return;
  Chain chain;
  aim(chain.add(window_.next_request(), IBV_WR_RDMA_READ, 0, 1, 0), ring_.head());
  landings_.note_poll(window_.last_request());
  post_extra(chain);
}

void Outbound::probe(TimePoint now) {
  if (!connection_.is_connected()) return watch_.rest();
  if (window_.awaits_completion()) return look_for_hang(now);
  watch_.rest();
  if (is_empty()) return;
  Chain chain;
  chain.add(window_.next_request(), IBV_WR_RDMA_WRITE, 0, 0, 0);
  post_extra(chain);
}

std::uint64_t Outbound::bytes_to_completion() const {
  std::uint64_t bytes = 0;
  std::uint32_t operations = 0;
  for (std::uint64_t position = ring_.first(); position != ring_.tail(); ++position) {
    const Operation& operation = ring_.at(position);
    if (operation.is_posted() && window_.is_returned(operation.progress.last_request)) continue;
    bytes += operation.transfer.size;
    if (operation.is_signaled || ++operations == kSignalEvery) break;
  }
  return bytes;
}

void Outbound::look_for_hang(TimePoint now) {
  if (ring_.completed() != completed_before_hang_) hangs_ = 0;
  const std::uint64_t returned = window_.returned();
  const Duration silence = watch_.look(returned, now);
  const std::uint64_t bytes = bytes_to_completion() << hangs_;
  if (!Engine::has_hung(connection_.queue_pair(), silence, bytes)) return;
  engine_.take_all_completions();  // perhaps nobody has looked
  if (!connection_.is_connected() || window_.returned() != returned) return;
  DUNLIN_WARN("the queue pair to rank {} has hung: nothing has come back for {:.0f} s",
              peer_.value(), to_seconds(silence));
  ++hangs_;
  completed_before_hang_ = ring_.completed();
  lose({Code::kIoError, "the queue pair has hung"});
}

// Completions ------------------------------------------------------------------------------------

[[gnu::hot]] void Outbound::on_completion(const ibv_wc& completion) {
  const bool is_receive = completion.wr_id == 0;
  if (completion.status != IBV_WC_SUCCESS) {
    if (!is_receive) on_failed_request(completion);
    return;  // a broken queue pair returns its receives together with its requests
  }
  if (is_receive) {
    const Credit credit = Credit::decode(ntohl(completion.imm_data));
    window_.take_credit(credit.taken);
    if (credit.asks_to_leave) is_leaving_ = is_asked_ = true;
    if (Status status = connection_.post_receive(); !status.is_ok()) return lose(std::move(status));
  } else {
    complete_up_to(completion.wr_id);
  }
  pump();
  if (is_leaving_) [[unlikely]]
    go_on_leaving();
}

[[gnu::hot]] void Outbound::complete_up_to(std::uint64_t request) {
  window_.take_back(request);
  while (ring_.is_head_on_wire() && ring_.head().is_posted() &&
         window_.is_returned(ring_.head().progress.last_request) && has_landed(ring_.head())) {
    window_.note_arrival(ring_.head().progress.record);
    ring_.finish_head(Status::ok());
  }
  if (!services_.empty()) send_waiting_services();
}

// The requests before the failed one have been carried out. The failed one and those behind it have
// not, or may not have been.
void Outbound::on_failed_request(const ibv_wc& completion) {
  complete_up_to(completion.wr_id - 1);
  // Not always the head: a flush there may have been carried out and still await landing notes.
  const std::uint64_t failed = ring_.find(completion.wr_id);
  const bool has_operation = failed != ring_.tail();
  Status status =
      to_status(has_operation ? ring_.at(failed).name : "probe", completion).with_peer(peer_);
  if (is_refusal(completion) && has_operation) ring_.refuse(failed, status);
  lose(std::move(status));
}

// Stripes ----------------------------------------------------------------------------------------

void Outbound::set_rails(std::unique_ptr<Rails> rails) {
  rails_ = std::move(rails);
}

std::size_t Outbound::take_stripes() {
  if (connection_.is_over()) return 0;
  std::size_t taken = 0;
  Status why = rails_->failure();
  while (why.is_ok()) {
    const auto outcome = rails_->stripes().next_outcome();
    if (!outcome) break;
    // A rail that is over leaves pieces undone, so the lane must not go on with what is behind
    // them.
    if (!outcome->status.is_ok()) why = rails_->failure();
    if (!why.is_ok()) break;
    ++taken;
    ring_.finish_stripes(outcome->position, outcome->notifies, outcome->status);
  }
  if (!why.is_ok()) {
    fail(std::move(why).with_peer(peer_));
  } else if (taken != 0) {
    pump();
  }
  return taken;
}

}  // namespace dunlin::transport::verbs
