#include "collectives/training/methods/parameter_share.h"

#include <algorithm>
#include <cstring>

#include "runtime/log.h"

namespace dunlin::training {
namespace {

ModelRange range_of(const MethodOptions& options, const ParameterRoles& roles, Rank server) {
  return share_of(options.count, roles.servers.size(), roles.index_of(server));
}

Status unexpected(Rank worker, const transport::Message& message) {
  return Status(
             Code::kCorrupted,
             fmt::format("parameter server: message {} of {} bytes with tag {:#x} is not the one "
                         "that is due from the worker: do all ranks have the same options?",
                         message.sequence, message.data.size(), message.tag))
      .with_peer(worker);
}

}  // namespace

bool ParameterShare::LaneState::is_done() const {
  return std::all_of(workers.begin(), workers.end(),
                     [](const Worker& worker) { return worker.answer.is_done(); });
}

ParameterShare::ParameterShare(transport::Fabric& fabric, const MethodOptions& options)
    : MethodBase(fabric, options, Phase::kServing),
      roles_(options, fabric.size()),
      range_(range_of(options, roles_, fabric.rank())),
      pieces_(range_, options.piece_elements),
      sgd_(options.sgd, range_.count) {}

ParameterShare::~ParameterShare() {
  keep_until_done(fabric(), std::move(lane_state_));
}

std::deque<ParameterShare::Worker>& ParameterShare::workers() {
  return lane_state_->workers;
}

Status ParameterShare::prepare() {
  lane_state_ = std::make_unique<LaneState>();
  DUNLIN_ASSIGN(lane_state_->parameters, fabric().allocate(range_.count * sizeof(float)));
  DUNLIN_ASSIGN(lane_state_->exchange,
                transport::SlotExchange::prepare(
                    fabric(), parameter_slots(options(), roles_, fabric().rank())));
  return Status::ok();
}

Status ParameterShare::connect() {
  transport::SlotExchange& exchange = *lane_state_->exchange;
  DUNLIN_TRY(survives_deaths(options()) ? exchange.connect_present() : exchange.connect());
  for (transport::InSlots& edge : exchange.in()) {
    Status status = edge.link == nullptr ? fabric().peers().check(edge.from) : connect_worker(edge);
    if (status.is_ok()) continue;
    if (fabric().peers().is_present(edge.from)) return status;
    if (edge.link != nullptr) lane_state_->workers.pop_back();
    DUNLIN_TRY(on_absence(edge.from));
  }
  if (!lane_state_->workers.empty()) return Status::ok();
  return fabric().peers().check(exchange.in().front().from).with_context("no worker is left");
}

Status ParameterShare::connect_worker(transport::InSlots& edge) {
  Worker& worker = lane_state_->workers.emplace_back(edge.from, *lane_state_->exchange, edge);
  auto value = fabric().bootstrap().lookup_from(worker.rank, parameters_key(options(), worker.rank),
                                                fabric().config().deadline);
  if (!value)
    return std::move(value)
        .status()
        .with_context("waiting for a worker's address")
        .with_peer(worker.rank);
  auto offer = ParametersOffer::decode(*value);
  if (!offer) return std::move(offer).status().with_peer(worker.rank);
  const auto cell = static_cast<std::uint32_t>(roles_.index_of(fabric().rank()));
  worker.answer_cell = transport::cell_at(offer->first_cell, cell);
  DUNLIN_ASSIGN(worker.link, fabric().link(worker.rank));
  DUNLIN_ASSIGN(worker.region, fabric().import_region(worker.rank, offer->descriptor));
  DUNLIN_ASSIGN(worker.parameters,
                worker.region->slice(range_.first * sizeof(float), range_.count * sizeof(float)));
  return Status::ok();
}

bool ParameterShare::is_any_active() const {
  return std::any_of(lane_state_->workers.begin(), lane_state_->workers.end(),
                     [](const Worker& worker) { return worker.life == Life::kActive; });
}

Status ParameterShare::step(std::span<const float> gradient, float learning_rate) {
  if (!has_parameters_)
    return {Code::kInternal, "parameter server: a gradient arrived before the initial parameters"};
  sgd_.step(parameters(), gradient, learning_rate);
  ++costs().synchronizations;
  return Status::ok();
}

void ParameterShare::answer(Worker& worker, bool is_stopped) {
  worker.is_stopped = is_stopped;
  worker.is_answer_due = true;
}

Status ParameterShare::post_answer(Worker& worker) {
  transport::Notification notification;
  notification.id = worker.answer_cell;
  notification.sequence = worker.iteration;
  notification.tag = worker.is_stopped ? kStop : kContinue;
  DUNLIN_ASSIGN(const auto from, answer_for(worker));
  DUNLIN_TRY(worker.link->data().put_notify(from, worker.parameters, notification,
                                            &worker.answer.completion));
  worker.answer.is_posted = true;
  worker.is_answer_due = false;
  ++worker.iteration;
  worker.pieces = 0;
  costs().bytes_sent += from.size();
  return Status::ok();
}

// All servers choose the same worker, unless one dies or leaves before it has sent all parameters.
const ParameterShare::Worker* ParameterShare::initial_worker() const {
  const auto found = std::find_if(lane_state_->workers.begin(), lane_state_->workers.end(),
                                  [](const Worker& each) { return each.life == Life::kActive; });
  return found == lane_state_->workers.end() ? nullptr : &*found;
}

// The parameters of the other workers stay in their slots until those of the initial worker are
// complete, because one of them may have to take its place. After that they are dropped.
Status ParameterShare::take_initial(Worker& worker, std::size_t piece,
                                    const transport::Message& message) {
  if (piece >= pieces_.size() || message.data.size() != pieces_.at(piece).count * sizeof(float))
    return unexpected(worker.rank, message);
  if (!has_parameters_) {
    if (&worker != initial_worker()) return Status::busy();
    std::memcpy(parameters().data() + offset_of(pieces_.at(piece)), message.data.data(),
                message.data.size());
    has_parameters_ = piece + 1 == pieces_.size();
  }
  return Status::ok();
}

// A worker needs no ACK after its kLeave. If sending one fails then, the worker is gone, even if
// the peer table does not show it yet.
Status ParameterShare::check_acks(Worker& worker, Status sent) {
  if (!sent.is_error() || worker.life != Life::kLeft) return sent;
  worker.life = Life::kGone;
  DUNLIN_INFO("no ACK for a worker that has left: {}", sent.to_string());
  return Status::ok();
}

Status ParameterShare::take(Worker& worker) {
  const transport::Message* const message = worker.inbox.message();
  if (message == nullptr) return Status::busy();
  const ParameterTag tag = ParameterTag::unpack(message->tag);
  switch (tag.message) {
    case ParameterMessage::kInitial:
      DUNLIN_TRY(take_initial(worker, tag.piece, *message));
      return worker.inbox.release();
    case ParameterMessage::kGradient: {
      if (tag.piece != worker.pieces || tag.piece >= pieces_.size() ||
          message->data.size() != pieces_.at(tag.piece).count * sizeof(float))
        return unexpected(worker.rank, *message);
      const auto* const values = reinterpret_cast<const float*>(message->data.data());
      const ModelRange piece = pieces_.at(tag.piece);
      return take_gradient(worker, piece, {values, piece.count});
    }
    case ParameterMessage::kFinish:
      if (worker.pieces != pieces_.size() || message->data.size() != sizeof(FinishMessage))
        return unexpected(worker.rank, *message);
      std::memcpy(&worker.finish, message->data.data(), sizeof(FinishMessage));
      DUNLIN_TRY(take_finish(worker));
      return worker.inbox.release();
    case ParameterMessage::kLeave:
      if (worker.pieces != 0) return unexpected(worker.rank, *message);
      worker.life = Life::kLeft;
      return check_acks(worker, worker.inbox.release());
  }
  return unexpected(worker.rank, *message);
}

// Returns ok if it has made progress.
Status ParameterShare::advance_worker(Worker& worker) {
  if (worker.life == Life::kFailed || worker.life == Life::kGone) return Status::busy();
  Status acks = check_acks(worker, worker.inbox.progress());
  if (acks.is_error()) return acks;
  if (worker.life != Life::kActive) return Status::busy();
  if (worker.is_answer_due) return post_answer(worker);
  if (worker.answer.is_posted && worker.answer.is_done()) return worker.answer.take();
  return may_take(worker) ? take(worker) : Status::busy();
}

Status ParameterShare::check_workers() {
  if (!peer_watch_.has_changed(fabric().peers())) return Status::ok();
  for (Worker& worker : lane_state_->workers) {
    if (worker.life != Life::kActive) continue;
    Status presence = fabric().peers().check(worker.rank);
    if (presence.is_ok()) continue;
    worker.life = Life::kFailed;
    DUNLIN_TRY(on_death(worker, std::move(presence).with_context("worker of a parameter server")));
  }
  return Status::ok();
}

Status ParameterShare::advance() {
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (Worker& worker : lane_state_->workers) {
      Status status = advance_worker(worker);
      // Lanes may know of a death before the peer table does, and report it with other errors.
      const bool is_dead = status.code() == Code::kPeerDead ||
                           (status.is_error() && !fabric().peers().is_present(worker.rank));
      if (is_dead && worker.life == Life::kActive) {
        worker.life = Life::kFailed;
        status = on_death(worker, std::move(status).with_peer(worker.rank));
      }
      if (status.is_error()) return status;
      has_moved = has_moved || status.is_ok();
    }
    Status status = apply();
    if (status.is_error()) return status;
    has_moved = has_moved || status.is_ok();
  }
  DUNLIN_TRY(check_workers());
  if (is_any_active()) return Status::busy();
  // The last ACKs must have been sent.
  for (Worker& worker : lane_state_->workers) {
    if (worker.life == Life::kLeft) DUNLIN_TRY(check_acks(worker, worker.inbox.progress()));
  }
  return Status::ok();
}

Rank ParameterShare::blocker() const {
  for (const Worker& worker : lane_state_->workers) {
    if (worker.life == Life::kActive && !worker.is_answer_due && worker.inbox.held() == nullptr)
      return worker.rank;
  }
  return {};
}

std::vector<transport::Awaited> ParameterShare::awaited() const {
  std::vector<transport::Awaited> awaited;
  for (const Worker& worker : lane_state_->workers) {
    if (worker.life != Life::kActive || worker.is_answer_due || worker.inbox.held() != nullptr)
      continue;
    awaited.push_back({worker.rank, fmt::format("its gradient of iteration {}", worker.iteration)});
  }
  return awaited;
}

}  // namespace dunlin::training
