#include "apps/training/methods/ad_psgd.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>

#include "apps/random.h"
#include "apps/training/methods/ad_psgd_edge.h"
#include "collectives/graph/generators.h"
#include "runtime/log.h"

namespace dunlin::training {
namespace {

// Proposals per iteration. A few are enough: whoever declines is about to end an average. The limit
// keeps those with high ranks, who are declined most, from proposing all the time while a neighbour
// is locked on someone slow.
constexpr int kMostProposals = 8;

// A model in its slot at the neighbour. The next message needs it back, but no message is urgent
// while the neighbour has not taken a model.
constexpr std::uint32_t kPairDepth = 1;

struct Wire final : transport::Retired {
  std::unique_ptr<transport::LocalRegion> model;
  std::unique_ptr<transport::SlotExchange> exchange;
  std::deque<AdPsgdEdge> edges;  // a deque, as completions don't move
  bool is_done() const override {
    return std::all_of(edges.begin(), edges.end(), [](const auto& edge) { return edge.is_done(); });
  }
};

class AdPsgd final : public MethodBase {
 public:
  AdPsgd(transport::Fabric& fabric, const MethodOptions& options)
      : MethodBase(fabric, options),
        sgd_(options.sgd, options.count),
        parameters_(options.count),
        gradient_(options.count),
        random_(options.seed, static_cast<std::uint64_t>(fabric.rank().value())) {}
  ~AdPsgd() override { retire(fabric(), std::move(wire_)); }
  Status prepare();
  Status connect() override;

  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradient() override { return gradient_; }
  std::span<float> velocity() override { return sgd_.velocity(); }
  std::vector<transport::Awaited> awaited() const override;

 private:
  enum class Lock : std::uint8_t { kFree, kProposed, kPaired };
  struct Neighbor {
    AdPsgdEdge* edge = nullptr;
    bool is_leaving = false;  // we have said our last word
    bool has_left = false;    // it has
    bool is_gone = false;     // dead, or its process has ended
    // May be proposed to, and may propose.
    bool is_here() const { return !is_leaving && !has_left && !is_gone; }
    // Nothing is on its way any more, in either direction.
    bool is_over() const {
      return is_gone ||
             (is_leaving && has_left && edge->is_heard() && edge->inbox().has_receipts_sent());
    }
  };

  Status start_begin(std::uint64_t) override;
  Status start_finish(float learning_rate) override;
  Status advance() override;
  bool is_needed(Rank) const override { return false; }
  Status step();

  Status attend(Neighbor& neighbor, transport::LocalSlice slice);
  Status hear(Neighbor& from);
  Status take_model(Neighbor& from);
  void lose(Neighbor& neighbor, const Status& why);
  void look_for_losses();
  void propose();
  void answer_proposals();
  void pair_with(std::size_t neighbor);
  void end_proposal(bool is_declined);
  Status end_pairing();
  void unlock();
  // This iteration's own average is over, or there is none.
  bool is_gradient_next() const {
    return phase() == Phase::kFinishing && lock_ == Lock::kFree && !is_average_due_ && is_step_due_;
  }
  void apply_gradient();
  void show_model();

  std::span<float> model() { return floats_of(*wire_->model, options().count); }
  std::size_t index_of(const Neighbor& neighbor) const {
    return static_cast<std::size_t>(&neighbor - neighbors_.data());
  }
  bool is_locked_on(const Neighbor& neighbor) const {
    return lock_ != Lock::kFree && partner_ == index_of(neighbor);
  }

  Sgd sgd_;
  std::vector<float> parameters_;
  std::vector<float> gradient_;
  Random random_;
  std::unique_ptr<Wire> wire_;
  std::vector<Neighbor> neighbors_;
  PeerNews news_;

  bool has_model_ = false;
  Lock lock_ = Lock::kFree;
  std::size_t partner_ = 0;    // a neighbour; unless free
  bool is_initiator_ = false;  // of the pairing
  bool has_their_model_ = false;
  std::deque<std::size_t> proposals_;  // of neighbours, kept
  bool owes_turn_ = false;             // to a kept proposal, before the next own one

  bool is_average_due_ = false;    // of this iteration
  int proposed_ = 0;               // in it
  std::set<std::size_t> refused_;  // by these, since all were asked
  bool is_step_due_ = false;
  float learning_rate_ = 0;
};

Status AdPsgd::prepare() {
  DUNLIN_ASSIGN(const auto graph, collective::make_graph(options().graph, fabric().size()));
  const int self = fabric().rank().value();
  std::set<int> around(graph.out_neighbors(self).begin(), graph.out_neighbors(self).end());
  around.insert(graph.in_neighbors(self).begin(), graph.in_neighbors(self).end());
  transport::SlotOptions slots;
  slots.name = options().name + "/pairs";
  for (const int peer : around) slots.in.emplace_back(peer);
  slots.out = slots.in;
  slots.slot_bytes = options().count * sizeof(float);
  slots.depth = kPairDepth;
  wire_ = std::make_unique<Wire>();
  DUNLIN_ASSIGN(wire_->model, fabric().allocate(slots.slot_bytes));
  DUNLIN_ASSIGN(wire_->exchange, transport::SlotExchange::prepare(fabric(), slots));
  return Status::ok();
}

Status AdPsgd::connect() {
  transport::SlotExchange& exchange = *wire_->exchange;
  DUNLIN_TRY(exchange.connect());
  for (std::size_t i = 0; i < exchange.in().size(); ++i) {
    wire_->edges.emplace_back(exchange, exchange.in()[i], exchange.out()[i]);
    neighbors_.emplace_back().edge = &wire_->edges.back();
  }
  return Status::ok();
}

Status AdPsgd::start_begin(std::uint64_t) {
  // The first time, parameters() are the caller's initial ones. Later they are what x has become.
  if (!has_model_) {
    std::copy(parameters_.begin(), parameters_.end(), model().begin());
    has_model_ = true;
  } else {
    show_model();
  }
  return Status::ok();
}

Status AdPsgd::start_finish(float learning_rate) {
  learning_rate_ = learning_rate;
  is_average_due_ = true;
  is_step_due_ = true;
  proposed_ = 0;
  refused_.clear();
  return Status::ok();
}

void AdPsgd::pair_with(std::size_t neighbor) {
  is_initiator_ = lock_ == Lock::kProposed;
  lock_ = Lock::kPaired;
  partner_ = neighbor;
  has_their_model_ = false;
  neighbors_[neighbor].edge->say(PairWord::kModel);
}

void AdPsgd::unlock() {
  owes_turn_ = owes_turn_ || is_initiator_;
  lock_ = Lock::kFree;
  is_initiator_ = false;
}

void AdPsgd::end_proposal(bool is_declined) {
  if (is_declined) refused_.insert(partner_);
  lock_ = Lock::kFree;
  owes_turn_ = true;
}

void AdPsgd::propose() {
  std::vector<std::size_t> here;
  for (const Neighbor& neighbor : neighbors_) {
    if (neighbor.is_here()) here.push_back(index_of(neighbor));
  }
  std::vector<std::size_t> choice;
  std::copy_if(here.begin(), here.end(), std::back_inserter(choice),
               [&](std::size_t index) { return !refused_.contains(index); });
  if (choice.empty()) {
    refused_.clear();
    choice = here;
  }
  if (choice.empty() || proposed_ == kMostProposals) {
    is_average_due_ = false;
    return;
  }
  partner_ = choice[random_.below(choice.size())];
  lock_ = Lock::kProposed;
  ++proposed_;
  if (std::erase(proposals_, partner_) > 0) {
    pair_with(partner_);  // it has proposed already
  } else {
    neighbors_[partner_].edge->say(PairWord::kPropose);
  }
}

// Kept proposals: those that can be answered now are.
void AdPsgd::answer_proposals() {
  const auto decline = [&](std::size_t index) {
    neighbors_[index].edge->say(PairWord::kDecline);
    return true;
  };
  if (phase() == Phase::kLeaving) return;  // our last word will be the answer
  if (!has_model_) {
    std::erase_if(proposals_, decline);
  } else if (lock_ == Lock::kProposed) {
    std::erase_if(proposals_, [&](std::size_t index) {
      return neighbors_[index].edge->peer() > fabric().rank() && decline(index);
    });
  } else if (lock_ == Lock::kFree && !proposals_.empty() && (!is_average_due_ || owes_turn_)) {
    const std::size_t first = proposals_.front();
    proposals_.pop_front();
    owes_turn_ = false;
    pair_with(first);
  }
}

Status AdPsgd::take_model(Neighbor& from) {
  const transport::Message& message = *from.edge->inbox().message();
  if (lock_ == Lock::kProposed && is_locked_on(from)) pair_with(index_of(from));
  if (lock_ != Lock::kPaired || !is_locked_on(from) ||
      message.data.size() != options().count * sizeof(float)) {
    return Status(Code::kCorrupted,
                  fmt::format("AD-PSGD: a model of {} bytes that is not due", message.data.size()))
        .with_peer(from.edge->peer());
  }
  // It stays in its slot until ours has left.
  has_their_model_ = true;
  return Status::ok();
}

// Ok: something has moved.
Status AdPsgd::hear(Neighbor& from) {
  if (has_their_model_ && is_locked_on(from)) return Status::busy();
  const transport::Message* const message = from.edge->inbox().message();
  if (message == nullptr) return Status::busy();
  switch (static_cast<PairWord>(message->tag)) {
    case PairWord::kModel:
      return take_model(from);
    case PairWord::kPropose:
      // Who has got our last word, or will, needs no other answer.
      if (lock_ == Lock::kProposed && is_locked_on(from)) {
        pair_with(index_of(from));
      } else if (!from.is_leaving) {
        proposals_.push_back(index_of(from));
      }
      return from.edge->inbox().release();
    case PairWord::kDecline:
      if (lock_ == Lock::kProposed && is_locked_on(from)) end_proposal(true);
      return from.edge->inbox().release();
    case PairWord::kLeave:
      from.has_left = true;
      if (lock_ == Lock::kProposed && is_locked_on(from)) end_proposal(false);
      std::erase(proposals_, index_of(from));
      if (!std::exchange(from.is_leaving, true)) from.edge->say(PairWord::kLeave);
      return from.edge->inbox().release();
  }
  return Status(Code::kCorrupted, fmt::format("AD-PSGD: a message with tag {}", message->tag))
      .with_peer(from.edge->peer());
}

// Both models have arrived, and ours is no longer read.
Status AdPsgd::end_pairing() {
  AdPsgdEdge& edge = *neighbors_[partner_].edge;
  if (!has_their_model_ || !edge.is_model_sent()) return Status::busy();
  DUNLIN_TRY(edge.take_sent());
  const auto* const theirs = reinterpret_cast<const float*>(edge.inbox().message()->data.data());
  const std::span<float> own = model();
  // In this form both get the same, bit for bit.
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = 0.5F * (own[i] + theirs[i]);
  has_their_model_ = false;
  ++costs().synchronizations;
  if (is_initiator_) is_average_due_ = false;
  unlock();
  return edge.inbox().release();
}

void AdPsgd::apply_gradient() {
  sgd_.step(model(), gradient_, learning_rate_);
  show_model();
  is_step_due_ = false;
}

void AdPsgd::show_model() {
  std::copy(model().begin(), model().end(), parameters_.begin());
}

void AdPsgd::lose(Neighbor& neighbor, const Status& why) {
  if (std::exchange(neighbor.is_gone, true)) return;
  if (!neighbor.has_left) {
    DUNLIN_WARN("AD-PSGD goes on without rank {}: {}", neighbor.edge->peer().value(),
                why.to_string());
  }
  neighbor.edge->close();
  std::erase(proposals_, index_of(neighbor));
  if (is_locked_on(neighbor)) {
    has_their_model_ = false;
    if (lock_ == Lock::kProposed) {
      end_proposal(false);
    } else {
      unlock();
    }
  }
}

void AdPsgd::look_for_losses() {
  if (!news_.are_there(fabric().peers())) return;
  for (Neighbor& neighbor : neighbors_) {
    const Status presence = fabric().peers().check(neighbor.edge->peer());
    if (!presence.is_ok()) lose(neighbor, presence);
  }
}

// Ok: something has moved.
Status AdPsgd::attend(Neighbor& neighbor, transport::LocalSlice slice) {
  if (Status status = neighbor.edge->inbox().progress(); status.is_error()) return status;
  if (Status status = neighbor.edge->send(slice); status.is_error()) return status;
  Status heard = hear(neighbor);
  if (heard.is_error() || lock_ != Lock::kPaired || !is_locked_on(neighbor)) return heard;
  Status ended = end_pairing();
  return ended.is_busy() ? heard : ended;
}

// Ok: something has moved.
Status AdPsgd::step() {
  DUNLIN_ASSIGN(const auto slice, slice_of(*wire_->model, {0, options().count}));
  bool has_moved = false;
  for (Neighbor& neighbor : neighbors_) {
    if (neighbor.is_gone) continue;
    Status status = attend(neighbor, slice);
    // Lanes may know of a death before the peer table does, and have words of their own for it.
    if (status.is_error() &&
        (status.code() == Code::kPeerDead || !fabric().peers().is_present(neighbor.edge->peer()))) {
      lose(neighbor, status);
      status = Status::ok();
    }
    if (status.is_error()) return status;
    has_moved = has_moved || status.is_ok();
  }
  const Lock lock = lock_;
  const std::size_t kept = proposals_.size();
  // Before kept proposals are served: one may always wait, as at the hub of a star.
  if (is_gradient_next()) apply_gradient();
  answer_proposals();
  if (phase() == Phase::kFinishing && lock_ == Lock::kFree) {
    if (proposals_.empty()) owes_turn_ = false;
    if (is_average_due_ && !owes_turn_) propose();
    if (is_gradient_next()) apply_gradient();
  }
  return has_moved || lock_ != lock || proposals_.size() != kept ? Status::ok() : Status::busy();
}

Status AdPsgd::advance() {
  look_for_losses();
  for (Status moved = Status::ok(); moved.is_ok();) {
    moved = step();
    if (moved.is_error()) return moved;
  }
  costs().bytes_sent = 0;
  for (const AdPsgdEdge& edge : wire_->edges) costs().bytes_sent += edge.bytes_sent();
  if (phase() == Phase::kFinishing) {
    if (is_step_due_) return Status::busy();
    set_stopped(wants_stop());
  }
  if (phase() != Phase::kLeaving) return Status::ok();
  // A pairing that is under way ends first: its partner counts on it.
  if (lock_ != Lock::kFree) return Status::busy();
  for (Neighbor& neighbor : neighbors_) {
    if (!neighbor.is_gone && !std::exchange(neighbor.is_leaving, true))
      neighbor.edge->say(PairWord::kLeave);
  }
  proposals_.clear();
  const bool is_over = std::all_of(neighbors_.begin(), neighbors_.end(),
                                   [](const Neighbor& neighbor) { return neighbor.is_over(); });
  if (!is_over) return Status::busy();
  if (has_model_) show_model();  // with averages that ended after the last iteration
  return Status::ok();
}

std::vector<transport::Awaited> AdPsgd::awaited() const {
  std::vector<transport::Awaited> awaited;
  const auto wait_for = [&](const Neighbor& neighbor, const char* what) {
    if (!neighbor.is_gone) awaited.push_back({neighbor.edge->peer(), what});
  };
  if (lock_ == Lock::kProposed) wait_for(neighbors_[partner_], "the answer to a proposal");
  if (lock_ == Lock::kPaired) wait_for(neighbors_[partner_], "its model, for an average");
  for (const Neighbor& neighbor : neighbors_) {
    if (phase() == Phase::kLeaving && lock_ == Lock::kFree && !neighbor.is_over())
      wait_for(neighbor, "its farewell");
  }
  return awaited;
}

}  // namespace

Result<std::unique_ptr<Method>> prepare_ad_psgd(transport::Fabric& fabric,
                                                const MethodOptions& options) {
  auto method = std::make_unique<AdPsgd>(fabric, options);
  DUNLIN_TRY(method->prepare());
  return std::unique_ptr<Method>(std::move(method));
}

}  // namespace dunlin::training
