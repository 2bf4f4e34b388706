#include "transports/sim/network.h"

#include <fmt/format.h>

#include "transports/sim/endpoint.h"
#include "transports/sim/transport.h"

namespace dunlin::transport::sim {

Result<std::unique_ptr<Network>> Network::create(Options options) {
  DUNLIN_TRY(options.check());
  return std::unique_ptr<Network>(new Network(std::move(options)));
}

Network::Network(Options options)
    : options_(std::move(options)),
      random_(options_.seed),
      ports_(options_),
      peers_(options_.ranks),
      ranks_(static_cast<std::size_t>(options_.ranks)) {
  for (const Straggler& straggler : options_.stragglers) {
    ranks_[straggler.rank.index()].factor = straggler.factor;
  }
}

Network::~Network() = default;

TransportFactory Network::factory() {
  return {"sim", [this](const TransportContext& context) -> Result<std::unique_ptr<Transport>> {
            DUNLIN_TRY(check_free(context.self));
            return std::unique_ptr<Transport>(std::make_unique<SimTransport>(*this, context));
          }};
}

Status Network::check_free(Rank rank) const {
  if (rank.value() < 0 || rank.value() >= options_.ranks) {
    return {Code::kOutOfRange, fmt::format("there is no rank {} on a simulated network of {} ranks",
                                           rank.value(), options_.ranks)};
  }
  if (endpoint(rank) == nullptr) return Status::ok();
  return {Code::kAlreadyExists,
          fmt::format("rank {} is on the simulated network already", rank.value())};
}

void Network::attach(Endpoint& endpoint) {
  ranks_[endpoint.rank().index()].endpoint = &endpoint;
}

void Network::detach(Endpoint& endpoint) {
  ranks_[endpoint.rank().index()].endpoint = nullptr;
}

void Network::set_actor(Rank rank, Actor* actor) {
  ranks_[rank.index()].actor = actor;
}

void Network::wake_at(Rank rank, TimePoint when) {
  events_.push(std::max(when, now()), EventKind::kWake, static_cast<std::uint32_t>(rank.value()));
}

TimePoint Network::compute(Rank rank, Duration work) {
  RankState& state = ranks_[rank.index()];
  const Duration took(
      static_cast<std::int64_t>(static_cast<double>(work.count()) * state.factor + 0.5));
  state.busy_until = std::max(state.busy_until, now()) + took;
  wake_at(rank, state.busy_until);
  return state.busy_until;
}

void Network::lose_at(Rank rank, TimePoint when) {
  events_.push(std::max(when, now()), EventKind::kLoss, static_cast<std::uint32_t>(rank.value()));
}

bool Network::is_refused(Rank rank) {
  if (!options_.hostility || !random_.chance(options_.hostility->refusal)) return false;
  // Without this, there might be no other event that makes the rank try again.
  if (ranks_[rank.index()].actor != nullptr) {
    wake_at(rank, now() + random_.uniform(options_.hostility->longest_delay));
  }
  return true;
}

bool Network::step() {
  if (events_.empty()) return false;
  const Event event = events_.pop();
  clock_.set(event.when);
  ++statistics_.events;
  const auto when = static_cast<std::uint64_t>(event.when.time_since_epoch().count());
  const std::uint64_t what = std::uint64_t{event.subject} << 24 | std::uint64_t{event.piece} << 8 |
                             static_cast<std::uint64_t>(event.kind);
  trace_hash_ = (trace_hash_ ^ when * 0x9e37'79b9'7f4a'7c15 ^ what) * 0xd6e8'feb8'6659'fd93;
  trace_hash_ ^= trace_hash_ >> 32;
  handle(event);
  take_turns();
  return true;
}

std::uint64_t Network::run(std::uint64_t most) {
  const SteadyClock clock;
  const TimePoint began = clock.now();
  std::uint64_t steps = 0;
  while (steps < most && step()) ++steps;
  statistics_.real += clock.now() - began;
  return steps;
}

void Network::handle(const Event& event) {
  const Rank rank(static_cast<int>(event.subject));
  switch (event.kind) {
    case EventKind::kWake:
      return nudge(rank);
    case EventKind::kLoss:
      return lose(rank);
    case EventKind::kNews:
      return tell_of_loss(rank);
    default:
      return handle_operation(event);
  }
}

void Network::nudge(Rank rank) {
  RankState& state = ranks_[rank.index()];
  // A busy rank is called when it has finished.
  if (state.actor == nullptr || state.is_lost || state.is_due || now() < state.busy_until) return;
  state.is_due = true;
  due_.push_back(rank);
}

void Network::take_turns() {
  // A call may make other ranks due.
  for (std::size_t i = 0; i < due_.size(); ++i) {
    const Rank rank = due_[i];
    RankState& state = ranks_[rank.index()];
    state.is_due = false;
    if (state.endpoint != nullptr) state.endpoint->progress();
    if (state.actor != nullptr) state.actor->advance();
  }
  due_.clear();
}

void Network::lose(Rank rank) {
  if (std::exchange(ranks_[rank.index()].is_lost, true)) return;
  events_.push(now() + options_.loss_notice, EventKind::kNews,
               static_cast<std::uint32_t>(rank.value()));
}

void Network::tell_of_loss(Rank rank) {
  const std::string reason =
      fmt::format("lost by the simulation at {:.9f} s", to_seconds(now().time_since_epoch()));
  peers_.mark(rank, PeerState::kDead, reason);
  for (int other = 0; other < options_.ranks; ++other) {
    Endpoint* const there = endpoint(Rank(other));
    if (there == nullptr || other == rank.value()) continue;
    if (&there->peers() != &peers_) there->peers().mark(rank, PeerState::kDead, reason);
    nudge(Rank(other));
  }
}

}  // namespace dunlin::transport::sim
