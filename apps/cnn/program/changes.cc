// Trainer: how its members change, when workers join, leave and die.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "apps/cnn/program/trainer.h"
#include "apps/standings.h"
#include "collectives/elastic/model_snapshot.h"

namespace dunlin::cnn {

namespace {

// The options that the method uses.
void add_method(const training::MethodOptions& method, Terms& terms) {
  using training::MethodKind;
  const std::string algorithm = method.algorithm.empty() ? "any" : method.algorithm;
  terms.add("--method", training::to_string(method.kind));
  switch (method.kind) {
    case MethodKind::kAllReduce:
      terms.add("--algorithm", algorithm);
      break;
    case MethodKind::kLocalSgd:
      terms.add("--section-length", method.section_length).add("--algorithm", algorithm);
      break;
    case MethodKind::kPartial:
      terms.add("--section-length", method.section_length)
          .add("--groups", collective::to_string(method.groups))
          .add("--group-size", method.generator.group_size)
          .add("--slowdown-threshold", method.generator.slowdown_threshold);
      break;
    case MethodKind::kStochastic:
      terms.add("--graph", method.graph)
          .add("--sync", collective::to_string(method.sync))
          .add("--depth", method.depth);
      break;
    case MethodKind::kAdPsgd:
      terms.add("--graph", method.graph);
      break;
    case MethodKind::kParameterServer:
    case MethodKind::kAsyncParameterServer:
      terms.add("--servers", method.servers);
      break;
    case MethodKind::kStragglerRing:
      break;
  }
}

}  // namespace

Terms Trainer::terms() const {
  Terms terms;
  terms.add("--model", cnn::to_string(options_.model))
      .add("--batch-norm", options_.has_batch_norm)
      .add("parameters", parameters_)
      .add("--batch-size", options_.batch_size)
      .add("--seed", options_.seed)
      .add("images (all, which each rank reads)", dunlin::to_string(data_.digest))
      .add("--augment", options_.is_augmented)
      .add("--device", options_.device.is_gpu ? "cuda" : "cpu")
      .add("iterations", planned_)
      .add("--learning-rate", options_.learning_rate)
      .add("--decay", options_.decay)
      .add("--decay-every", options_.decay_every)
      .add("--momentum", method_.sgd.momentum)
      .add("--weight-decay", method_.sgd.weight_decay);
  add_method(method_, terms);
  terms.add("--on-peer-loss", dunlin::to_string(members_.on_peer_loss()));
  return terms;
}

Terms Trainer::terms_of_start() const {
  Terms terms = this->terms();
  terms.add("--resume", given(options_.resume))
      .add("--checkpoint", given(options_.checkpoint))
      .add("--checkpoint-every", options_.checkpoint_every)
      .add("--duration", options_.duration_s)
      .add("--target-loss", options_.target_loss);
  return terms;
}

Status Trainer::arrive() {
  DUNLIN_TRY(members_.join(terms()));
  return regroup();
}

Status Trainer::take_turn() {
  DUNLIN_ASSIGN(const bool changes, ask_whether([this] {
                  return members_.change_before(iteration_ + 1, interrupt_->is_asked(SIGTERM));
                }));
  return changes ? change_members() : step();
}

// The bootstrap belongs to the communication thread.
Result<bool> Trainer::ask_whether(const std::function<Result<bool>()>& members_change) {
  bool answer = false;
  if (!members_.is_elastic()) return answer;
  DUNLIN_TRY(sync_->call([&](transport::Fabric&) -> Status {
    DUNLIN_ASSIGN(answer, members_change());
    return Status::ok();
  }));
  return answer;
}

Status Trainer::change_members() {
  DUNLIN_TRY(sync_->leave());
  DUNLIN_TRY(end_synchronizer());
  DUNLIN_TRY(members_.end_epoch());
  if (members_.is_leaving()) {
    has_left_ = true;
    members_.leave(iteration_);
    return Status::ok();
  }
  DUNLIN_TRY(members_.reform());
  return regroup();
}

Status Trainer::survive(Status outcome) {
  if (!outcome.is_error() || !takes_newcomers()) return outcome;
  // This thread owns the fabric from here on. A member that has no model yet, as it is about to get
  // one, has none to keep.
  if (sync_) DUNLIN_TRY(end_synchronizer());
  return members_.survive(std::move(outcome), [this] {
    Status status = regroup();
    // state_ has its model.
    if (!status.is_ok()) sync_.reset();
    return status;
  });
}

// Keeps the model.
Status Trainer::end_synchronizer() {
  past_ += sync_->report();
  report_ = past_;
  if (safe_.empty()) {
    DUNLIN_ASSIGN(state_.parameters, device_->read(sync_->parameters()));
  } else {
    state_.parameters = std::exchange(safe_, {});
  }
  DUNLIN_ASSIGN(state_.velocity, device_->read(sync_->velocity()));
  DUNLIN_ASSIGN(state_.statistics, device_->read(network_->statistics()));
  sync_.reset();
  return Status::ok();
}

Status Trainer::regroup() {
  members_.drop_links();
  DUNLIN_ASSIGN(const auto standings,
                share_standings(fabric_, "dunlin-cnn/standing", members_.membership(), standing(),
                                members_.timeout()));
  if (std::ranges::none_of(standings, &Standing::has_model))
    return {Code::kUnavailable, "no member of this job is left that has a model"};
  take_over(standings);
  feed_->want(members_.share());
  DUNLIN_TRY(change_output());
  DUNLIN_TRY(hand_over(standings));
  DUNLIN_TRY(make_synchronizer());
  DUNLIN_TRY(device_->write(sync_->parameters(), state_.parameters));
  DUNLIN_TRY(device_->write(sync_->velocity(), state_.velocity));
  DUNLIN_TRY(device_->write(network_->statistics(), state_.statistics));
  has_model_ = true;
  std::vector<Rank> newcomers;
  for (std::size_t i = 0; i < standings.size(); ++i) {
    if (!standings[i].has_model) newcomers.push_back(members_.ranks()[i]);
  }
  const MembersChange change = members_.settle(newcomers, iteration_);
  return output_.members(training_time(), iteration_, change);
}

Standing Trainer::standing() const {
  return {.has_model = has_model_,
          .is_over = is_over_,
          .iteration = iteration_,
          .timeout = timeout_,
          .trained =
              began_ == TimePoint() ? Duration::zero() : fabric_.clock().now() - began_ - paused_,
          .loss = means_.loss,
          .accuracy = means_.accuracy,
          .batches = means_.batches};
}

// Members that are in step may be some iterations apart after a death, and not all may know of the
// end. They continue from the number that the furthest one has reached. Those that end alone
// continue from their own numbers, and a newcomer from that of its source (hand_over()).
void Trainer::take_over(const std::vector<Standing>& standings) {
  const bool are_in_step = !ends_alone(method_);
  Standing all{.is_over = !are_in_step};
  const Standing* first = nullptr;
  for (const Standing& each : standings) {
    if (!each.has_model) continue;
    if (first == nullptr) first = &each;
    all.is_over = are_in_step ? all.is_over || each.is_over : all.is_over && each.is_over;
    all.iteration = std::max(all.iteration, each.iteration);
    all.timeout = std::max(all.timeout, each.timeout);
    all.trained = std::max(all.trained, each.trained);
  }
  if (are_in_step) iteration_ = all.iteration;
  if (are_in_step || !has_model_) is_over_ = all.is_over;
  timeout_ = all.timeout;
  members_.allow(timeout_);
  if (has_model_) return;
  means_.loss = first->loss;
  means_.accuracy = first->accuracy;
  means_.batches = first->batches;
  began_ = fabric_.clock().now() - all.trained;
  before_joining_s_ = to_seconds(all.trained);
}

Status Trainer::hand_over(const std::vector<Standing>& standings) {
  std::vector<bool> is_new;
  for (const Standing& each : standings) is_new.push_back(!each.has_model);
  if (!has_model_) {
    state_.parameters.resize(parameters_);
    state_.velocity.resize(method_.sgd.momentum != 0 ? parameters_ : 0);
    state_.statistics.resize(statistics_);
  }
  std::vector<float> packed = state_.packed();
  DUNLIN_ASSIGN(const std::uint64_t iteration,
                collective::hand_over_models(
                    fabric_, fmt::format("dunlin-cnn/{}", members_.epoch()),
                    collective::plan_hand_overs(members_.ranks(), is_new),
                    std::as_writable_bytes(std::span(packed)), iteration_, members_.timeout()));
  if (has_model_) return Status::ok();
  state_.unpack(packed);
  iteration_ = first_ = iteration;
  return Status::ok();
}

// The first member reports.
Status Trainer::change_output() {
  if (!team_.is_first() || output_.is_teller()) return Status::ok();
  DUNLIN_ASSIGN(output_, Output::take_over(options_));
  DUNLIN_TRY(load_test(options_, data_));
  if (data_.test) examiner_.take(*data_.test, data_.normalization);
  return Status::ok();
}

}  // namespace dunlin::cnn
