#include "apps/training/methods/parameter_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "apps/training/methods/method_base.h"
#include "apps/training/methods/parameter_wire.h"
#include "transports/channel/queue.h"

namespace dunlin::training {
namespace {

using transport::SendQueue;

// A share of the model, and the way to the server that holds it. The order of what is sent is that
// of these members.
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
  std::deque<Posted> posted;  // a deque, as completions don't move
  std::optional<SendQueue> queue;
  std::size_t initial_sent = 0;
  std::size_t gradient_sent = 0;
  bool is_finish_sent = false;
  bool is_leave_sent = false;
};

struct Wire final : transport::Retired {
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

  std::span<float> parameters() override { return floats_of(*wire_->parameters, options().count); }
  std::span<float> gradient() override { return floats_of(*wire_->gradient, options().count); }
  std::vector<transport::Awaited> awaited() const override;

 private:
  Status start_begin(std::uint64_t) override;
  Status start_part(ModelRange range) override;
  Status start_finish(float learning_rate) override;
  Status advance() override;

  Status send(Share& share);
  Status send_piece(Share& share, ParameterWord word, std::size_t piece);
  Status end_begin();
  Status end_finish();
  Status end_leave();
  // Asynchronous servers go on without workers that die; who leaves does so without anybody.
  bool is_needed(Rank rank) const override {
    const bool is_synchronous = options().kind == MethodKind::kParameterServer;
    return phase() != Phase::kLeaving && (is_synchronous || roles_.is_server(rank));
  }
  bool has_answer(std::size_t share) const { return answer(share).sequence >= iteration_; }
  struct Answer {
    std::uint64_t sequence = 0;
    std::uint64_t tag = kGoOn;
  };
  Answer answer(std::size_t share) const;

  const ParameterRoles roles_;
  std::unique_ptr<Wire> wire_;
  transport::NotifyId answers_{};  // a cell per server
  bool has_cells_ = false;
  FinishWord finish_;
  std::uint64_t iteration_ = 0;  // the present one, from 1
};

ParameterWorker::~ParameterWorker() {
  retire(fabric(), std::move(wire_));
  if (has_cells_) fabric().board().free(answers_, roles_.servers.size());
}

Status ParameterWorker::prepare() {
  wire_ = std::make_unique<Wire>();
  const std::size_t bytes = options().count * sizeof(float);
  DUNLIN_ASSIGN(wire_->parameters, fabric().allocate(bytes));
  DUNLIN_ASSIGN(wire_->gradient, fabric().allocate(bytes));
  DUNLIN_ASSIGN(wire_->exchange,
                transport::SlotExchange::prepare(
                    fabric(), parameter_slots(options(), roles_, fabric().rank())));
  DUNLIN_ASSIGN(answers_, fabric().board().allocate(roles_.servers.size()));
  has_cells_ = true;
  for (std::size_t i = 0; i < roles_.servers.size(); ++i)
    wire_->shares.emplace_back(share_of(options().count, roles_.servers.size(), i),
                               options().piece_elements, roles_.servers[i]);
  ByteWriter offer;
  offer.number(static_cast<std::uint32_t>(answers_)).blob(wire_->parameters->descriptor());
  return fabric().bootstrap().publish(parameters_key(options(), fabric().rank()), offer.take());
}

Status ParameterWorker::connect() {
  DUNLIN_TRY(wire_->exchange->connect());
  auto& edges = wire_->exchange->out();
  for (std::size_t i = 0; i < edges.size(); ++i)
    wire_->shares[i].queue.emplace(*wire_->exchange, edges[i]);
  return Status::ok();
}

Status ParameterWorker::start_begin(std::uint64_t) {
  ++iteration_;
  for (Share& share : wire_->shares) {
    share.pieces.reset();
    share.gradient_sent = 0;
    share.is_finish_sent = false;
  }
  return Status::ok();
}

Status ParameterWorker::start_part(ModelRange range) {
  for (Share& share : wire_->shares) DUNLIN_TRY(share.pieces.add(range));
  return Status::ok();
}

Status ParameterWorker::start_finish(float learning_rate) {
  finish_ = {learning_rate, wants_stop() ? 1U : 0U};
  for (Share& share : wire_->shares) share.pieces.add_all();
  return Status::ok();
}

Status ParameterWorker::send_piece(Share& share, ParameterWord word, std::size_t piece) {
  const ModelRange range = share.pieces.at(piece);
  const bool is_initial = word == ParameterWord::kInitial;
  DUNLIN_ASSIGN(const auto slice,
                slice_of(is_initial ? *wire_->parameters : *wire_->gradient, range));
  Posted& posted = is_initial ? share.posted_initial(piece) : share.posted_gradient(piece);
  const ParameterTag tag{word, static_cast<std::uint32_t>(piece)};
  DUNLIN_TRY(share.queue->try_send(slice, tag.packed(), &posted.completion));
  posted.is_posted = true;
  costs().bytes_sent += slice.size();
  return Status::ok();
}

// All that is due, in the order of the channel; kBusy where there is no room for it.
Status ParameterWorker::send(Share& share) {
  if (iteration_ > 0) {
    for (; share.initial_sent < share.pieces.size(); ++share.initial_sent)
      DUNLIN_TRY(send_piece(share, ParameterWord::kInitial, share.initial_sent));
  }
  for (; share.gradient_sent < share.pieces.ready(); ++share.gradient_sent)
    DUNLIN_TRY(send_piece(share, ParameterWord::kGradient, share.gradient_sent));
  if (phase() == Phase::kFinishing && !share.is_finish_sent) {
    DUNLIN_TRY(share.queue->try_send_inline(std::as_bytes(std::span(&finish_, 1)),
                                            ParameterTag{ParameterWord::kFinish}.packed()));
    share.is_finish_sent = true;
  }
  if (phase() == Phase::kLeaving && !share.is_leave_sent) {
    DUNLIN_TRY(share.queue->try_send_inline({}, ParameterTag{ParameterWord::kLeave}.packed()));
    share.is_leave_sent = true;
  }
  return Status::ok();
}

ParameterWorker::Answer ParameterWorker::answer(std::size_t share) const {
  const transport::NotifyId id = transport::cell_at(answers_, static_cast<std::uint32_t>(share));
  // The sequence first: its acquire load makes the tag, and the parameters, visible.
  const std::uint64_t sequence = fabric().board().sequence(id);
  return {sequence, fabric().board().cell(id).tag};
}

// The initial parameters have left our memory, which is the caller's from now on.
Status ParameterWorker::end_begin() {
  for (Share& share : wire_->shares) {
    for (std::size_t i = 0; i < share.pieces.size(); ++i) {
      if (i >= share.initial_sent || !share.posted_initial(i).is_done()) return Status::busy();
    }
  }
  for (Share& share : wire_->shares) {
    for (std::size_t i = 0; i < share.pieces.size(); ++i)
      DUNLIN_TRY(share.posted_initial(i).take());
  }
  return Status::ok();
}

Status ParameterWorker::end_finish() {
  bool is_stopped = false;
  for (std::size_t i = 0; i < wire_->shares.size(); ++i) {
    if (!has_answer(i) || !wire_->shares[i].is_all_done()) return Status::busy();
    is_stopped = is_stopped || answer(i).tag == kStop;
  }
  for (Share& share : wire_->shares) {
    for (Posted& posted : share.posted) DUNLIN_TRY(posted.take());
  }
  set_stopped(is_stopped);
  ++costs().synchronizations;
  return Status::ok();
}

// A server takes a farewell over at once, and may be gone by then.
Status ParameterWorker::end_leave() {
  for (Share& share : wire_->shares) {
    const bool is_taken = share.is_leave_sent && share.queue->acknowledged() == share.queue->sent();
    if (!is_taken && fabric().peers().is_present(share.server)) return Status::busy();
  }
  return Status::ok();
}

Status ParameterWorker::advance() {
  Status outcome;
  for (Share& share : wire_->shares) {
    Status status = send(share);
    // Who leaves doesn't need what has left before him.
    if (phase() == Phase::kLeaving && status.code() == Code::kPeerDead) continue;
    if (status.is_error()) return std::move(status).with_context("sending to a parameter server");
    if (status.is_busy()) outcome = Status::busy();
  }
  if (phase() == Phase::kLeaving) return end_leave();
  if (phase() == Phase::kBeginning) outcome = end_begin();
  if (phase() == Phase::kFinishing) outcome = end_finish();
  return outcome;
}

std::vector<transport::Awaited> ParameterWorker::awaited() const {
  std::vector<transport::Awaited> awaited;
  for (std::size_t i = 0; i < wire_->shares.size(); ++i) {
    const Share& share = wire_->shares[i];
    const bool is_acknowledged = share.queue && share.queue->acknowledged() == share.queue->sent();
    if (phase() == Phase::kFinishing && !has_answer(i)) {
      awaited.push_back(
          {share.server, fmt::format("the parameters after iteration {}", iteration_)});
    } else if (phase() == Phase::kLeaving && fabric().peers().is_present(share.server) &&
               !(share.is_leave_sent && is_acknowledged)) {
      awaited.push_back({share.server, "the receipt of the farewell"});
    } else if (phase() == Phase::kBeginning && !is_acknowledged) {
      awaited.push_back({share.server, "the receipt of initial parameters"});
    }
  }
  return awaited;
}

}  // namespace

Result<std::unique_ptr<Method>> prepare_parameter_worker(transport::Fabric& fabric,
                                                         const MethodOptions& options) {
  auto method = std::make_unique<ParameterWorker>(fabric, options);
  DUNLIN_TRY(method->prepare());
  return std::unique_ptr<Method>(std::move(method));
}

}  // namespace dunlin::training
