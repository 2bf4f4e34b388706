#include "collectives/training/methods/ad_psgd.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>

#include "collectives/graph/generators.h"
#include "collectives/training/methods/ad_psgd_edge.h"
#include "runtime/log.h"
#include "runtime/random.h"

namespace dunlin::training {
namespace {

// Proposals per iteration. A few are enough: a rank that declines is about to end an average. The
// limit keeps high ranks, which are declined most often, from proposing all the time while a
// neighbor is locked on a slow rank.
constexpr int kMostProposals = 8;

// Slots per edge. A model occupies the slot until the neighbor has taken it, and the next message
// waits for that. No message is urgent before.
constexpr std::uint32_t kPairDepth = 1;

// What lanes may still access when the method is destroyed.
struct LaneState final : transport::KeptUntilDone {
  std::unique_ptr<transport::LocalRegion> model;
  std::unique_ptr<transport::SlotExchange> exchange;
  std::deque<AdPsgdEdge> edges;  // a deque, because completions must not move
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
  ~AdPsgd() override { keep_until_done(fabric(), std::move(lane_state_)); }
  Status prepare();
  Status connect() override;

  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradient() override { return gradient_; }
  std::span<float> velocity() override { return sgd_.velocity(); }
  std::vector<transport::Awaited> awaited() const override;
  Rank blocker() const override;

 private:
  enum class Lock : std::uint8_t { kFree, kProposed, kPaired };
  struct Neighbor {
    AdPsgdEdge* edge = nullptr;
    bool is_leaving = false;  // this rank has enqueued its last message
    bool has_left = false;    // the neighbor's last message has arrived
    bool is_gone = false;     // the neighbor is dead, or its process has ended
    // True if either rank may propose to the other.
    bool is_available() const { return !is_leaving && !has_left && !is_gone; }
    // True if no message is in progress any more, in either direction.
    bool is_over() const {
      return is_gone || (is_leaving && has_left && edge->is_all_acknowledged() &&
                         edge->inbox().has_sent_acks());
    }
  };

  Status start_begin(std::uint64_t) override;
  Status start_finish(float learning_rate) override;
  Status advance() override;
  bool is_needed(Rank) const override { return false; }
  Status step();

  Status advance_neighbor(Neighbor& neighbor, transport::LocalSlice slice);
  Status receive(Neighbor& from);
  Status take_model(Neighbor& from);
  void remove(Neighbor& neighbor, const Status& why);
  void check_neighbors();
  void propose();
  void answer_proposals();
  void pair_with(std::size_t neighbor);
  void end_proposal(bool is_declined);
  Status end_pairing();
  void unlock();
  // True if the step is due: this iteration's own average has ended, or there is none.
  bool is_step_next() const {
    return phase() == Phase::kFinishing && lock_ == Lock::kFree && !is_average_due_ && is_step_due_;
  }
  void take_step();
  void add_own_step();
  void show_model();

  std::span<float> model() { return floats_of(*lane_state_->model, options().count); }
  std::size_t index_of(const Neighbor& neighbor) const {
    return static_cast<std::size_t>(&neighbor - neighbors_.data());
  }
  bool is_locked_on(const Neighbor& neighbor) const {
    return lock_ != Lock::kFree && locked_on_ == index_of(neighbor);
  }

  Sgd sgd_;
  std::vector<float> parameters_;
  std::vector<float> gradient_;
  std::vector<float>
      shown_;  // parameters() as the method last wrote them, if steps are the worker's
  Random random_;
  std::unique_ptr<LaneState> lane_state_;
  std::vector<Neighbor> neighbors_;
  PeerTableWatch peer_watch_;

  bool has_model_ = false;
  Lock lock_ = Lock::kFree;
  std::size_t locked_on_ = 0;  // index of a neighbor; no meaning while free
  bool is_initiator_ = false;  // this rank has proposed the pairing
  bool has_their_model_ = false;
  std::deque<std::size_t> proposals_;  // the neighbors whose proposals are kept
  bool owes_turn_ = false;             // a kept proposal is served before the next own one

  bool is_average_due_ = false;    // in this iteration
  int proposed_ = 0;               // number of proposals in this iteration
  std::set<std::size_t> refused_;  // neighbors that declined since all were asked
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
  lane_state_ = std::make_unique<LaneState>();
  DUNLIN_ASSIGN(lane_state_->model, fabric().allocate(slots.slot_bytes));
  DUNLIN_ASSIGN(lane_state_->exchange, transport::SlotExchange::prepare(fabric(), slots));
  return Status::ok();
}

Status AdPsgd::connect() {
  transport::SlotExchange& exchange = *lane_state_->exchange;
  DUNLIN_TRY(exchange.connect_present());
  for (std::size_t i = 0; i < exchange.in().size(); ++i) {
    if (exchange.in()[i].link == nullptr || exchange.out()[i].link == nullptr) {
      DUNLIN_WARN("AD-PSGD starts without rank {}", exchange.in()[i].from.value());
      continue;
    }
    lane_state_->edges.emplace_back(exchange, exchange.in()[i], exchange.out()[i]);
    neighbors_.emplace_back().edge = &lane_state_->edges.back();
  }
  return Status::ok();
}

Status AdPsgd::start_begin(std::uint64_t) {
  // At first the caller's initial parameters become x. Later x becomes parameters(), unless the
  // worker has changed them already.
  if (!has_model_) {
    std::copy(parameters_.begin(), parameters_.end(), model().begin());
    if (options().has_own_step) shown_ = parameters_;
    has_model_ = true;
  } else if (!options().has_own_step) {
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
  locked_on_ = neighbor;
  has_their_model_ = false;
  neighbors_[neighbor].edge->enqueue(PairMessage::kModel);
}

void AdPsgd::unlock() {
  owes_turn_ = owes_turn_ || is_initiator_;
  lock_ = Lock::kFree;
  is_initiator_ = false;
}

void AdPsgd::end_proposal(bool is_declined) {
  if (is_declined) refused_.insert(locked_on_);
  lock_ = Lock::kFree;
  owes_turn_ = true;
}

void AdPsgd::propose() {
  std::vector<std::size_t> available;
  for (const Neighbor& neighbor : neighbors_) {
    if (neighbor.is_available()) available.push_back(index_of(neighbor));
  }
  std::vector<std::size_t> choice;
  std::copy_if(available.begin(), available.end(), std::back_inserter(choice),
               [&](std::size_t index) { return !refused_.contains(index); });
  if (choice.empty()) {
    refused_.clear();
    choice = available;
  }
  if (choice.empty() || proposed_ == kMostProposals) {
    is_average_due_ = false;
    return;
  }
  locked_on_ = choice[random_.below(choice.size())];
  lock_ = Lock::kProposed;
  ++proposed_;
  if (std::erase(proposals_, locked_on_) > 0) {
    pair_with(locked_on_);  // the neighbor has already proposed
  } else {
    neighbors_[locked_on_].edge->enqueue(PairMessage::kPropose);
  }
}

// Answers the kept proposals that can be answered now.
void AdPsgd::answer_proposals() {
  const auto decline = [&](std::size_t index) {
    neighbors_[index].edge->enqueue(PairMessage::kDecline);
    return true;
  };
  if (phase() == Phase::kLeaving) return;  // kLeave will be the answer
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
                  fmt::format("AD-PSGD: an unexpected model of {} bytes", message.data.size()))
        .with_peer(from.edge->peer());
  }
  // It stays in its slot until this rank's model has left.
  has_their_model_ = true;
  return Status::ok();
}

// Returns ok if it has processed a message.
Status AdPsgd::receive(Neighbor& from) {
  if (has_their_model_ && is_locked_on(from)) return Status::busy();
  const transport::Message* const message = from.edge->inbox().message();
  if (message == nullptr) return Status::busy();
  switch (static_cast<PairMessage>(message->tag)) {
    case PairMessage::kModel:
      return take_model(from);
    case PairMessage::kPropose:
      // A neighbor to which kLeave goes needs no other answer.
      if (lock_ == Lock::kProposed && is_locked_on(from)) {
        pair_with(index_of(from));
      } else if (!from.is_leaving) {
        proposals_.push_back(index_of(from));
      }
      return from.edge->inbox().release();
    case PairMessage::kDecline:
      if (lock_ == Lock::kProposed && is_locked_on(from)) end_proposal(true);
      return from.edge->inbox().release();
    case PairMessage::kLeave:
      from.has_left = true;
      if (lock_ == Lock::kProposed && is_locked_on(from)) end_proposal(false);
      std::erase(proposals_, index_of(from));
      if (!std::exchange(from.is_leaving, true)) from.edge->enqueue(PairMessage::kLeave);
      return from.edge->inbox().release();
  }
  return Status(Code::kCorrupted,
                fmt::format("AD-PSGD: an unknown message with tag {}", message->tag))
      .with_peer(from.edge->peer());
}

// Ends the pairing if both models have arrived and the lane does not read this rank's any more.
Status AdPsgd::end_pairing() {
  AdPsgdEdge& edge = *neighbors_[locked_on_].edge;
  if (!has_their_model_ || !edge.is_model_sent()) return Status::busy();
  DUNLIN_TRY(edge.take_sent());
  const auto* const theirs = reinterpret_cast<const float*>(edge.inbox().message()->data.data());
  const std::span<float> own = model();
  // In this form both ranks compute the same bits.
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = 0.5F * (own[i] + theirs[i]);
  has_their_model_ = false;
  ++costs().synchronizations;
  if (is_initiator_) is_average_due_ = false;
  unlock();
  return edge.inbox().release();
}

void AdPsgd::take_step() {
  if (options().has_own_step) {
    add_own_step();
  } else {
    sgd_.step(model(), gradient_, learning_rate_);
  }
  show_model();
  is_step_due_ = false;
}

// What the worker has changed since parameters() were shown. Where no average has changed x
// meanwhile, x gets the worker's bits.
void AdPsgd::add_own_step() {
  const std::span<float> x = model();
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = x[i] == shown_[i] ? parameters_[i] : x[i] + (parameters_[i] - shown_[i]);
}

void AdPsgd::show_model() {
  std::copy(model().begin(), model().end(), parameters_.begin());
  if (options().has_own_step) std::copy(parameters_.begin(), parameters_.end(), shown_.begin());
}

void AdPsgd::remove(Neighbor& neighbor, const Status& why) {
  if (std::exchange(neighbor.is_gone, true)) return;
  if (!neighbor.has_left) {
    DUNLIN_WARN("AD-PSGD continues without rank {}: {}", neighbor.edge->peer().value(),
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

void AdPsgd::check_neighbors() {
  if (!peer_watch_.has_changed(fabric().peers())) return;
  for (Neighbor& neighbor : neighbors_) {
    const Status presence = fabric().peers().check(neighbor.edge->peer());
    if (!presence.is_ok()) remove(neighbor, presence);
  }
}

// Returns ok if it has made progress.
Status AdPsgd::advance_neighbor(Neighbor& neighbor, transport::LocalSlice slice) {
  if (Status status = neighbor.edge->inbox().progress(); status.is_error()) return status;
  if (Status status = neighbor.edge->send(slice); status.is_error()) return status;
  Status received = receive(neighbor);
  if (received.is_error() || lock_ != Lock::kPaired || !is_locked_on(neighbor)) return received;
  Status ended = end_pairing();
  return ended.is_busy() ? received : ended;
}

// Returns ok if it has made progress.
Status AdPsgd::step() {
  DUNLIN_ASSIGN(const auto slice, slice_of(*lane_state_->model, {0, options().count}));
  bool has_moved = false;
  for (Neighbor& neighbor : neighbors_) {
    if (neighbor.is_gone) continue;
    Status status = advance_neighbor(neighbor, slice);
    // Lanes may know of a death before the peer table does, and report it with other errors.
    if (status.is_error() &&
        (status.code() == Code::kPeerDead || !fabric().peers().is_present(neighbor.edge->peer()))) {
      remove(neighbor, status);
      status = Status::ok();
    }
    if (status.is_error()) return status;
    has_moved = has_moved || status.is_ok();
  }
  const Lock lock = lock_;
  const std::size_t kept = proposals_.size();
  // Do this before serving kept proposals: at the hub of a star one may always be waiting.
  if (is_step_next()) take_step();
  answer_proposals();
  if (phase() == Phase::kFinishing && lock_ == Lock::kFree) {
    if (proposals_.empty()) owes_turn_ = false;
    if (is_average_due_ && !owes_turn_) propose();
    if (is_step_next()) take_step();
  }
  return has_moved || lock_ != lock || proposals_.size() != kept ? Status::ok() : Status::busy();
}

Status AdPsgd::advance() {
  check_neighbors();
  for (Status moved = Status::ok(); moved.is_ok();) {
    moved = step();
    if (moved.is_error()) return moved;
  }
  costs().bytes_sent = 0;
  for (const AdPsgdEdge& edge : lane_state_->edges) costs().bytes_sent += edge.bytes_sent();
  if (phase() == Phase::kFinishing) {
    if (is_step_due_) return Status::busy();
    set_stopped(wants_stop());
  }
  if (phase() != Phase::kLeaving) return Status::ok();
  // A pairing in progress ends first, because the peer relies on it.
  if (lock_ != Lock::kFree) return Status::busy();
  for (Neighbor& neighbor : neighbors_) {
    if (!neighbor.is_gone && !std::exchange(neighbor.is_leaving, true))
      neighbor.edge->enqueue(PairMessage::kLeave);
  }
  proposals_.clear();
  const bool is_over = std::all_of(neighbors_.begin(), neighbors_.end(),
                                   [](const Neighbor& neighbor) { return neighbor.is_over(); });
  if (!is_over) return Status::busy();
  if (has_model_) show_model();  // with averages that ended after the last iteration
  return Status::ok();
}

Rank AdPsgd::blocker() const {
  if (lock_ == Lock::kFree || neighbors_[locked_on_].is_gone) return {};
  return neighbors_[locked_on_].edge->peer();
}

std::vector<transport::Awaited> AdPsgd::awaited() const {
  std::vector<transport::Awaited> awaited;
  const auto wait_for = [&](const Neighbor& neighbor, const char* what) {
    if (!neighbor.is_gone) awaited.push_back({neighbor.edge->peer(), what});
  };
  if (lock_ == Lock::kProposed) wait_for(neighbors_[locked_on_], "the answer to a proposal");
  if (lock_ == Lock::kPaired) wait_for(neighbors_[locked_on_], "its model, for an average");
  for (const Neighbor& neighbor : neighbors_) {
    if (phase() == Phase::kLeaving && lock_ == Lock::kFree && !neighbor.is_over())
      wait_for(neighbor, "its last message");
  }
  return awaited;
}

}  // namespace

Result<std::unique_ptr<Method>> prepare_ad_psgd(transport::Fabric& fabric,
                                                const MethodOptions& options) {
  return prepare_method<AdPsgd>(fabric, options);
}

}  // namespace dunlin::training
