#include "apps/training/methods/parameter_share.h"

#include <algorithm>
#include <cstring>

#include "runtime/log.h"

namespace dunlin::training {
namespace {

ModelRange range_of(const MethodOptions& options, const ParameterRoles& roles, Rank server) {
  return share_of(options.count, roles.servers.size(), roles.index_of(server));
}

Status misplaced(Rank worker, const transport::Message& message) {
  return Status(Code::kCorrupted,
                fmt::format("parameter server: message {} of {} bytes, tag {:#x}, is not what is "
                            "due from the worker: do all ranks have the same options?",
                            message.sequence, message.data.size(), message.tag))
      .with_peer(worker);
}

}  // namespace

bool ParameterShare::Wire::is_done() const {
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
  retire(fabric(), std::move(wire_));
}

std::deque<ParameterShare::Worker>& ParameterShare::workers() {
  return wire_->workers;
}

Status ParameterShare::prepare() {
  wire_ = std::make_unique<Wire>();
  DUNLIN_ASSIGN(wire_->parameters, fabric().allocate(range_.count * sizeof(float)));
  DUNLIN_ASSIGN(wire_->exchange,
                transport::SlotExchange::prepare(
                    fabric(), parameter_slots(options(), roles_, fabric().rank())));
  return Status::ok();
}

Status ParameterShare::connect() {
  DUNLIN_TRY(wire_->exchange->connect());
  const auto cell = static_cast<std::uint32_t>(roles_.index_of(fabric().rank()));
  for (transport::InSlots& edge : wire_->exchange->in()) {
    Worker& worker = wire_->workers.emplace_back(edge.from, *wire_->exchange, edge);
    auto offer = fabric().bootstrap().lookup(parameters_key(options(), worker.rank),
                                             fabric().config().deadline);
    if (!offer)
      return std::move(offer).status().with_context("a worker's parameters").with_peer(worker.rank);
    ByteReader reader(*offer);
    worker.answer_cell =
        transport::cell_at(transport::NotifyId(reader.number<std::uint32_t>()), cell);
    const auto descriptor = reader.blob();
    if (!reader.at_end())
      return Status(Code::kCorrupted, "malformed offer of a worker").with_peer(worker.rank);
    DUNLIN_ASSIGN(worker.link, fabric().link(worker.rank));
    DUNLIN_ASSIGN(worker.region, fabric().import_region(worker.rank, descriptor));
    DUNLIN_ASSIGN(worker.parameters,
                  worker.region->slice(range_.first * sizeof(float), range_.count * sizeof(float)));
  }
  return Status::ok();
}

bool ParameterShare::is_any_active() const {
  return std::any_of(wire_->workers.begin(), wire_->workers.end(),
                     [](const Worker& worker) { return worker.life == Life::kActive; });
}

Status ParameterShare::step(std::span<const float> gradient, float learning_rate) {
  if (!has_parameters_)
    return {Code::kInternal, "parameter server: a gradient before the initial parameters"};
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
  notification.tag = worker.is_stopped ? kStop : kGoOn;
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

// The same one at all servers, unless workers are lost or leave before they have given everything.
const ParameterShare::Worker* ParameterShare::giver() const {
  const auto found = std::find_if(wire_->workers.begin(), wire_->workers.end(),
                                  [](const Worker& each) { return each.life == Life::kActive; });
  return found == wire_->workers.end() ? nullptr : &*found;
}

// What others give stays in its slots until the giver's is complete, as one of them may have to
// take its place; then it is old.
Status ParameterShare::take_initial(Worker& worker, std::size_t piece,
                                    const transport::Message& message) {
  if (piece >= pieces_.size() || message.data.size() != pieces_.at(piece).count * sizeof(float))
    return misplaced(worker.rank, message);
  if (!has_parameters_) {
    if (&worker != giver()) return Status::busy();
    std::memcpy(parameters().data() + offset_of(pieces_.at(piece)), message.data.data(),
                message.data.size());
    has_parameters_ = piece + 1 == pieces_.size();
  }
  return Status::ok();
}

// Nothing is due to a worker after its farewell: if a receipt fails then, it is gone, maybe before
// anybody knows of it.
Status ParameterShare::check_receipts(Worker& worker, Status sent) {
  if (!sent.is_error() || worker.life != Life::kLeft) return sent;
  worker.life = Life::kGone;
  DUNLIN_INFO("no receipt for a worker that has left: {}", sent.to_string());
  return Status::ok();
}

Status ParameterShare::take(Worker& worker) {
  const transport::Message* const message = worker.inbox.message();
  if (message == nullptr) return Status::busy();
  const ParameterTag tag = ParameterTag::unpack(message->tag);
  switch (tag.word) {
    case ParameterWord::kInitial:
      DUNLIN_TRY(take_initial(worker, tag.piece, *message));
      return worker.inbox.release();
    case ParameterWord::kGradient: {
      if (tag.piece != worker.pieces || tag.piece >= pieces_.size() ||
          message->data.size() != pieces_.at(tag.piece).count * sizeof(float))
        return misplaced(worker.rank, *message);
      const auto* const values = reinterpret_cast<const float*>(message->data.data());
      const ModelRange piece = pieces_.at(tag.piece);
      return take_gradient(worker, piece, {values, piece.count});
    }
    case ParameterWord::kFinish:
      if (worker.pieces != pieces_.size() || message->data.size() != sizeof(FinishWord))
        return misplaced(worker.rank, *message);
      std::memcpy(&worker.finish, message->data.data(), sizeof(FinishWord));
      DUNLIN_TRY(take_finish(worker));
      return worker.inbox.release();
    case ParameterWord::kLeave:
      if (worker.pieces != 0) return misplaced(worker.rank, *message);
      worker.life = Life::kLeft;
      return check_receipts(worker, worker.inbox.release());
  }
  return misplaced(worker.rank, *message);
}

// Ok: something has moved.
Status ParameterShare::advance_worker(Worker& worker) {
  if (worker.life == Life::kLost || worker.life == Life::kGone) return Status::busy();
  Status receipts = check_receipts(worker, worker.inbox.progress());
  if (receipts.is_error()) return receipts;
  if (worker.life != Life::kActive) return Status::busy();
  if (worker.is_answer_due) return post_answer(worker);
  if (worker.answer.is_posted && worker.answer.is_done()) return worker.answer.take();
  return may_take(worker) ? take(worker) : Status::busy();
}

Status ParameterShare::look_for_workers() {
  if (!news_.are_there(fabric().peers())) return Status::ok();
  for (Worker& worker : wire_->workers) {
    if (worker.life != Life::kActive) continue;
    Status presence = fabric().peers().check(worker.rank);
    if (presence.is_ok()) continue;
    worker.life = Life::kLost;
    DUNLIN_TRY(lose(worker, std::move(presence).with_context("worker of a parameter server")));
  }
  return Status::ok();
}

Status ParameterShare::advance() {
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (Worker& worker : wire_->workers) {
      Status status = advance_worker(worker);
      // Lanes may know of a death before the peer table does, and have words of their own for it.
      const bool is_lost = status.code() == Code::kPeerDead ||
                           (status.is_error() && !fabric().peers().is_present(worker.rank));
      if (is_lost && worker.life == Life::kActive) {
        worker.life = Life::kLost;
        status = lose(worker, std::move(status).with_peer(worker.rank));
      }
      if (status.is_error()) return status;
      has_moved = has_moved || status.is_ok();
    }
    Status status = apply();
    if (status.is_error()) return status;
    has_moved = has_moved || status.is_ok();
  }
  DUNLIN_TRY(look_for_workers());
  if (is_any_active()) return Status::busy();
  // The last receipts have to be on their way.
  for (Worker& worker : wire_->workers) {
    if (worker.life == Life::kLeft) DUNLIN_TRY(check_receipts(worker, worker.inbox.progress()));
  }
  return Status::ok();
}

std::vector<transport::Awaited> ParameterShare::awaited() const {
  std::vector<transport::Awaited> awaited;
  for (const Worker& worker : wire_->workers) {
    if (worker.life != Life::kActive || worker.is_answer_due || worker.inbox.held() != nullptr)
      continue;
    awaited.push_back({worker.rank, fmt::format("its gradient of iteration {}", worker.iteration)});
  }
  return awaited;
}

}  // namespace dunlin::training
