#include "collectives/training/methods/parameter_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "collectives/training/methods/method_base.h"
#include "collectives/training/methods/parameter_wire.h"
#include "transports/channel/queue.h"

namespace dunlin::training {
namespace {

using transport::SendQueue;

// A share of the model, and the channel to the server that holds it. Messages are sent in the order
// of the members from initial_sent to is_leave_sent.
struct Share {
  Share(ModelRange range, std::size_t piece_elements, Rank holder)
      : pieces(range, piece_elements), server(holder), posted(2 * pieces.size()) {}

  Posted& posted_initial(std::size_t piece) { return posted[piece]; }
  Posted& posted_gradient(std::size_t piece) { return posted[pieces.size() + piece]; }
  bool is_all_done() const {
    return std::all_of(posted.begin(), posted.end(), [](const Posted& p) { return p.is_done(); });
  }

  Pieces pieces;
  Rank server;
  std::deque<Posted> posted;  // a deque, because completions must not move
  std::optional<SendQueue> queue;
  std::size_t initial_sent = 0;
  std::size_t gradient_sent = 0;
  bool is_finish_sent = false;
  bool is_leave_sent = false;
};

// What lanes may still access when the method is destroyed.
struct LaneState final : transport::KeptUntilDone {
  std::unique_ptr<transport::LocalRegion> parameters;
  std::unique_ptr<transport::LocalRegion> gradient;
  std::unique_ptr<transport::SlotExchange> exchange;
  std::deque<Share> shares;
  bool is_done() const override {
    return std::all_of(shares.begin(), shares.end(),
                       [](const Share& s) { return s.is_all_done(); });
  }
};

class ParameterWorker final : public MethodBase {
 public:
  ParameterWorker(transport::Fabric& fabric, const MethodOptions& options)
      : MethodBase(fabric, options), roles_(options, fabric.size()) {}
  ~ParameterWorker() override;
  Status prepare();
  Status connect() override;

  std::span<float> parameters() override {
    return floats_of(*lane_state_->parameters, options().count);
  }
  std::span<float> gradient() override {
    return floats_of(*lane_state_->gradient, options().count);
  }
  std::vector<transport::Awaited> awaited() const override;
  Rank blocker() const override;

 private:
  Status start_begin(std::uint64_t) override;
  Status start_part(ModelRange range) override;
  Status start_finish(float learning_rate) override;
  Status advance() override;

  Status send(Share& share);
  Status send_piece(Share& share, ParameterMessage message, std::size_t piece);
  Status end_begin();
  Status end_finish();
  Status end_leave();
  // Asynchronous servers continue without dead workers. A worker that leaves needs no other rank.
  bool is_needed(Rank rank) const override {
    const bool is_synchronous = options().kind == MethodKind::kParameterServer;
    return phase() != Phase::kLeaving && (is_synchronous || roles_.is_server(rank));
  }
  bool has_answer(std::size_t share) const { return answer(share).sequence >= iteration_; }
  struct Answer {
    std::uint64_t sequence = 0;
    std::uint64_t tag = kContinue;
  };
  Answer answer(std::size_t share) const;

  const ParameterRoles roles_;
  std::unique_ptr<LaneState> lane_state_;
  transport::NotifyId answers_{};  // first of one cell per server
  bool has_cells_ = false;
  FinishMessage finish_;
  std::uint64_t iteration_ = 0;  // the current one, from 1
};

ParameterWorker::~ParameterWorker() {
  keep_until_done(fabric(), std::move(lane_state_));
  if (has_cells_) fabric().board().free(answers_, roles_.servers.size());
}

Status ParameterWorker::prepare() {
  lane_state_ = std::make_unique<LaneState>();
  const std::size_t bytes = options().count * sizeof(float);
  DUNLIN_ASSIGN(lane_state_->parameters, fabric().allocate(bytes));
  DUNLIN_ASSIGN(lane_state_->gradient, fabric().allocate(bytes));
  DUNLIN_ASSIGN(lane_state_->exchange,
                transport::SlotExchange::prepare(
                    fabric(), parameter_slots(options(), roles_, fabric().rank())));
  DUNLIN_ASSIGN(answers_, fabric().board().allocate(roles_.servers.size()));
  has_cells_ = true;
  for (std::size_t i = 0; i < roles_.servers.size(); ++i)
    lane_state_->shares.emplace_back(share_of(options().count, roles_.servers.size(), i),
                                     options().piece_elements, roles_.servers[i]);
  const ParametersOffer offer{answers_, lane_state_->parameters->descriptor()};
  return fabric().bootstrap().publish(parameters_key(options(), fabric().rank()), offer.encode());
}

Status ParameterWorker::connect() {
  DUNLIN_TRY(lane_state_->exchange->connect());
  auto& edges = lane_state_->exchange->out();
  for (std::size_t i = 0; i < edges.size(); ++i)
    lane_state_->shares[i].queue.emplace(*lane_state_->exchange, edges[i]);
  return Status::ok();
}

Status ParameterWorker::start_begin(std::uint64_t) {
  ++iteration_;
  for (Share& share : lane_state_->shares) {
    share.pieces.reset();
    share.gradient_sent = 0;
    share.is_finish_sent = false;
  }
  return Status::ok();
}

Status ParameterWorker::start_part(ModelRange range) {
  for (Share& share : lane_state_->shares) DUNLIN_TRY(share.pieces.add(range));
  return Status::ok();
}

Status ParameterWorker::start_finish(float learning_rate) {
  finish_ = {learning_rate, wants_stop() ? 1U : 0U};
  for (Share& share : lane_state_->shares) share.pieces.add_all();
  return Status::ok();
}

Status ParameterWorker::send_piece(Share& share, ParameterMessage message, std::size_t piece) {
  const ModelRange range = share.pieces.at(piece);
  const bool is_initial = message == ParameterMessage::kInitial;
  DUNLIN_ASSIGN(const auto slice,
                slice_of(is_initial ? *lane_state_->parameters : *lane_state_->gradient, range));
  Posted& posted = is_initial ? share.posted_initial(piece) : share.posted_gradient(piece);
  const ParameterTag tag{message, static_cast<std::uint32_t>(piece)};
  DUNLIN_TRY(share.queue->try_send(slice, tag.packed(), &posted.completion));
  posted.is_posted = true;
  costs().bytes_sent += slice.size();
  return Status::ok();
}

// Sends all messages that are due, in order. Returns kBusy if the channel has no room for one.
Status ParameterWorker::send(Share& share) {
  if (iteration_ > 0) {
    for (; share.initial_sent < share.pieces.size(); ++share.initial_sent)
      DUNLIN_TRY(send_piece(share, ParameterMessage::kInitial, share.initial_sent));
  }
  for (; share.gradient_sent < share.pieces.ready(); ++share.gradient_sent)
    DUNLIN_TRY(send_piece(share, ParameterMessage::kGradient, share.gradient_sent));
  if (phase() == Phase::kFinishing && !share.is_finish_sent) {
    DUNLIN_TRY(share.queue->try_send_inline(std::as_bytes(std::span(&finish_, 1)),
                                            ParameterTag{ParameterMessage::kFinish}.packed()));
    share.is_finish_sent = true;
  }
  if (phase() == Phase::kLeaving && !share.is_leave_sent) {
    DUNLIN_TRY(share.queue->try_send_inline({}, ParameterTag{ParameterMessage::kLeave}.packed()));
    share.is_leave_sent = true;
  }
  return Status::ok();
}

ParameterWorker::Answer ParameterWorker::answer(std::size_t share) const {
  const transport::NotifyId id = transport::cell_at(answers_, static_cast<std::uint32_t>(share));
  // Read the sequence first: its acquire load makes the tag and the parameters visible.
  const std::uint64_t sequence = fabric().board().sequence(id);
  return {sequence, fabric().board().cell(id).tag};
}

// Ends begin() when the initial parameters have left. Their memory then belongs to the caller.
Status ParameterWorker::end_begin() {
  for (Share& share : lane_state_->shares) {
    for (std::size_t i = 0; i < share.pieces.size(); ++i) {
      if (i >= share.initial_sent || !share.posted_initial(i).is_done()) return Status::busy();
    }
  }
  for (Share& share : lane_state_->shares) {
    for (std::size_t i = 0; i < share.pieces.size(); ++i)
      DUNLIN_TRY(share.posted_initial(i).take());
  }
  return Status::ok();
}

Status ParameterWorker::end_finish() {
  bool is_stopped = false;
  for (std::size_t i = 0; i < lane_state_->shares.size(); ++i) {
    if (!has_answer(i) || !lane_state_->shares[i].is_all_done()) return Status::busy();
    is_stopped = is_stopped || answer(i).tag == kStop;
  }
  for (Share& share : lane_state_->shares) {
    for (Posted& posted : share.posted) DUNLIN_TRY(posted.take());
  }
  set_stopped(is_stopped);
  ++costs().synchronizations;
  return Status::ok();
}

// A server acknowledges kLeave at once, and may be gone after that.
Status ParameterWorker::end_leave() {
  for (Share& share : lane_state_->shares) {
    const bool is_taken = share.is_leave_sent && share.queue->acknowledged() == share.queue->sent();
    if (!is_taken && fabric().peers().is_present(share.server)) return Status::busy();
  }
  return Status::ok();
}

Status ParameterWorker::advance() {
  Status outcome;
  for (Share& share : lane_state_->shares) {
    Status status = send(share);
    // A worker that leaves does not need servers that have left before it.
    if (phase() == Phase::kLeaving && status.code() == Code::kPeerDead) continue;
    if (status.is_error()) return std::move(status).with_context("sending to a parameter server");
    if (status.is_busy()) outcome = Status::busy();
  }
  if (phase() == Phase::kLeaving) return end_leave();
  if (phase() == Phase::kBeginning) outcome = end_begin();
  if (phase() == Phase::kFinishing) outcome = end_finish();
  return outcome;
}

Rank ParameterWorker::blocker() const {
  for (std::size_t i = 0; i < lane_state_->shares.size(); ++i) {
    const Share& share = lane_state_->shares[i];
    if (phase() == Phase::kFinishing && !has_answer(i)) return share.server;
  }
  return {};
}

std::vector<transport::Awaited> ParameterWorker::awaited() const {
  std::vector<transport::Awaited> awaited;
  for (std::size_t i = 0; i < lane_state_->shares.size(); ++i) {
    const Share& share = lane_state_->shares[i];
    const bool is_acknowledged = share.queue && share.queue->acknowledged() == share.queue->sent();
    if (phase() == Phase::kFinishing && !has_answer(i)) {
      awaited.push_back(
          {share.server, fmt::format("the parameters after iteration {}", iteration_)});
    } else if (phase() == Phase::kLeaving && fabric().peers().is_present(share.server) &&
               !(share.is_leave_sent && is_acknowledged)) {
      awaited.push_back({share.server, "the ACK of its last message"});
    } else if (phase() == Phase::kBeginning && !is_acknowledged) {
      awaited.push_back({share.server, "the ACK of initial parameters"});
    }
  }
  return awaited;
}

}  // namespace

Result<std::unique_ptr<Method>> prepare_parameter_worker(transport::Fabric& fabric,
                                                         const MethodOptions& options) {
  return prepare_method<ParameterWorker>(fabric, options);
}

}  // namespace dunlin::training
