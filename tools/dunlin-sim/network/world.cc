#include "tools/dunlin-sim/network/world.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <optional>

#include "tools/lib/progress.h"

namespace dunlin::simulate {

using transport::Awaited;
using transport::Fabric;
using transport::sim::Network;

Status check_fabrics(const Scenario& scenario) {
  if (scenario.network.ranks <= kMostFabrics) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("--ranks {}: this command takes at most {}, each with a fabric of its own",
                      scenario.network.ranks, kMostFabrics)};
}

Result<std::unique_ptr<World>> World::create(const Scenario& scenario) {
  std::unique_ptr<World> world(new World(scenario));
  DUNLIN_TRY(world->start());
  return world;
}

Status World::start() {
  // Boards, models and events need descriptors. If raising the limit is not allowed, the call that
  // lacks one reports it.
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  }
  DUNLIN_ASSIGN(config_, Config::parse(Environment()));
  config_.transports = {"sim"};
  config_.huge_pages = false;
  DUNLIN_ASSIGN(network_, scenario_.make_network());
  const int ranks = scenario_.network.ranks;
  job_ = std::make_unique<InProcessJob>(ranks, "dunlin-sim");
  for (int rank = 0; rank < ranks; ++rank) {
    bootstraps_.push_back(job_->bootstrap(Rank(rank)));
    DUNLIN_ASSIGN(auto fabric, Fabric::create(*bootstraps_.back(), config_, network_->clock(),
                                              nullptr, {network_->factory()}));
    fabrics_.push_back(std::move(fabric));
  }
  return Status::ok();
}

Membership World::everybody() const {
  Membership all;
  for (int rank = 0; rank < size(); ++rank) all.members.emplace_back(rank);
  return all;
}

namespace {

// One rank of a run.
class Runner final : public transport::sim::Actor {
 public:
  // `fabric`: null when the rank is a node.
  Runner(const Scenario& scenario, Network& network, Rank rank, Fabric* fabric, Stepper& stepper,
         Report& report)
      : network_(network),
        rank_(rank),
        fabric_(fabric),
        scenario_(scenario),
        stepper_(stepper),
        report_(report) {
    network_.set_actor(rank, this);
    network_.wake_at(rank, TimePoint() + stepper.begins_after());
  }
  ~Runner() { network_.set_actor(rank_, nullptr); }

  void advance() override {
    if (fabric_ != nullptr) fabric_->progress();
    while (!is_over() && take_phase()) continue;
  }

  bool is_over() const { return outcome_.has_value(); }
  // ok, or why the rank ended before its last step.
  const Status& outcome() const { return *outcome_; }
  TimePoint ended_at() const { return ended_at_; }
  // What the rank waits for, as text for a report.
  std::string waits_for() const {
    std::string text = fmt::format("rank {} in step {}, since {}", rank_.value(), step_,
                                   format_duration(started_at_.time_since_epoch()));
    for (const Awaited& awaited : stepper_.awaited()) {
      text += fmt::format(", waits for {} from rank {}", awaited.what, awaited.peer.value());
    }
    return text;
  }

  // Ends this rank if a rank is gone without which it cannot continue, as Fabric::wait() does.
  bool check_for_deaths() {
    PeerTable& peers = fabric_ == nullptr ? network_.peers() : fabric_->peers();
    for (const Kill& kill : scenario_.kills) {
      if (peers.is_present(kill.rank) || !stepper_.depends_on(kill.rank)) continue;
      return end(peers.check(kill.rank));
    }
    return false;
  }

 private:
  enum class Phase { kIdle, kComputing, kExchanging };

  // Returns false when there is nothing to do until the next event.
  bool take_phase() {
    const TimePoint now = network_.now();
    switch (phase_) {
      case Phase::kIdle:
        if (step_ == scenario_.steps) return end(Status::ok());
        if (now < TimePoint() + stepper_.begins_after()) return false;
        ++step_;
        began_at_ = now;
        phase_ = Phase::kComputing;
        ready_at_ = now;
        if (scenario_.compute > Duration::zero()) {
          ready_at_ = network_.compute(rank_, scenario_.compute);
        }
        return true;
      case Phase::kComputing: {
        if (now < ready_at_) return false;
        started_at_ = now;
        phase_ = Phase::kExchanging;
        if (Status status = stepper_.start(step_); !status.is_ok()) return end(std::move(status));
        return true;
      }
      case Phase::kExchanging: {
        Status status = stepper_.test();
        if (status.is_busy()) {
          wake_for_stepper();
          return check_for_deaths();
        }
        if (!status.is_ok()) return end(std::move(status));
        report_.step.add(now - began_at_);
        report_.waited.add(now - started_at_);
        ++report_.steps;
        report_.virtual_time = std::max(report_.virtual_time, now.time_since_epoch());
        phase_ = Phase::kIdle;
        return true;
      }
    }
    return false;
  }

  void wake_for_stepper() {
    const auto event = stepper_.next_event();
    if (!event || event == woken_at_) return;
    woken_at_ = event;
    network_.wake_at(rank_, *event);
  }

  bool end(Status outcome) {
    outcome_.emplace(std::move(outcome));
    ended_at_ = network_.now();
    return false;
  }

  Network& network_;
  Rank rank_;
  Fabric* fabric_;
  const Scenario& scenario_;
  Stepper& stepper_;
  Report& report_;
  Phase phase_ = Phase::kIdle;
  std::uint64_t step_ = 0;
  TimePoint began_at_{};
  TimePoint ready_at_{};
  TimePoint started_at_{};
  TimePoint ended_at_{};
  std::optional<TimePoint> woken_at_;  // when the stepper asked last to be woken
  std::optional<Status> outcome_;
};

bool is_victim(const Scenario& scenario, std::optional<Rank> rank) {
  return std::any_of(scenario.kills.begin(), scenario.kills.end(),
                     [&](const Kill& kill) { return kill.rank == rank; });
}

// Reports the ranks that hang, and what each waits for.
Status report_hang(const std::vector<std::unique_ptr<Runner>>& runners, const Scenario& scenario,
                   std::uint64_t events) {
  constexpr int kTold = 8;
  std::string text;
  int count = 0;
  for (std::size_t rank = 0; rank < runners.size(); ++rank) {
    if (runners[rank]->is_over() || is_victim(scenario, Rank(static_cast<int>(rank)))) continue;
    if (++count <= kTold) text += "\n  " + runners[rank]->waits_for();
  }
  const bool is_endless = events >= scenario.events;
  return {Code::kInternal,
          fmt::format("{} of {} ranks are not done {}:{}{}", count, runners.size(),
                      is_endless ? "after --most-events" : "and no events are left", text,
                      count > kTold ? "\n  ..." : "")};
}

void report_deaths(const std::vector<std::unique_ptr<Runner>>& runners, Network& network,
                   const Scenario& scenario, Report& report) {
  for (const Kill& kill : scenario.kills) {
    if (!network.is_lost(kill.rank)) continue;
    Duration longest{};
    int ended = 0;
    for (std::size_t rank = 0; rank < runners.size(); ++rank) {
      const Runner& runner = *runners[rank];
      if (!runner.is_over() || runner.outcome().is_ok()) continue;
      if (runner.outcome().peer() != kill.rank) continue;
      ++ended;
      longest = std::max(longest, runner.ended_at().time_since_epoch() - kill.at);
    }
    report.facts.push_back(
        {fmt::format("loss_of_{}", kill.rank.value()),
         {{"ended", ended}, {"longest_us", static_cast<double>(longest.count()) / 1e3}},
         fmt::format("rank {} dead  {} ranks ended because of it, the last one {} later",
                     kill.rank.value(), ended, format_duration(longest))});
  }
}

// Runs until nothing is left to happen or the limit of the scenario is reached. Returns the number
// of events.
std::uint64_t run_events(Network& network, const Scenario& scenario, const Report& report) {
  constexpr std::uint64_t kEventsPerLook = 1 << 18;
  const SteadyClock clock;
  tools::Progress progress(clock);
  const TimePoint began = clock.now();
  std::uint64_t events = 0;
  while (events < scenario.events) {
    const std::uint64_t most = std::min(kEventsPerLook, scenario.events - events);
    const std::uint64_t done = network.run(most);
    events += done;
    if (done < most) break;
    progress.show([&] {
      return fmt::format("simulated {} in {:.0f} s: {:.1f} million events, {} of {} steps",
                         format_duration(network.now().time_since_epoch()),
                         to_seconds(clock.now() - began), static_cast<double>(events) / 1e6,
                         report.steps,
                         scenario.steps * static_cast<std::uint64_t>(scenario.network.ranks));
    });
  }
  return events;
}

Status run_all(const Scenario& scenario, Network& network,
               const std::vector<std::unique_ptr<Runner>>& runners, Report& report) {
  const std::uint64_t events = run_events(network, scenario, report);
  // A rank that waits for one which a death has ended was not told of that.
  if (network.events_in_flight() == 0) {
    for (std::size_t index = 0; index < runners.size(); ++index) {
      if (!runners[index]->is_over() && !is_victim(scenario, Rank(static_cast<int>(index))))
        runners[index]->check_for_deaths();
    }
  }
  bool hangs = false;
  for (std::size_t index = 0; index < runners.size(); ++index) {
    const Rank rank(static_cast<int>(index));
    if (is_victim(scenario, rank)) continue;
    hangs = hangs || !runners[index]->is_over();
    if (!runners[index]->is_over() || runners[index]->outcome().is_ok()) continue;
    const Status& outcome = runners[index]->outcome();
    const bool is_expected =
        outcome.code() == Code::kPeerDead && is_victim(scenario, outcome.peer());
    if (!is_expected) return Status(outcome).with_context(fmt::format("rank {}", rank.value()));
  }
  if (hangs) return report_hang(runners, scenario, events);
  report_deaths(runners, network, scenario, report);
  report.take(network);
  return Status::ok();
}

}  // namespace

Status run_steps(World& world, const std::vector<std::unique_ptr<Stepper>>& steppers,
                 Report& report) {
  std::vector<std::unique_ptr<Runner>> runners;
  for (std::size_t index = 0; index < steppers.size(); ++index) {
    const Rank rank(static_cast<int>(index));
    runners.push_back(std::make_unique<Runner>(world.scenario(), world.network(), rank,
                                               &world.fabric(rank), *steppers[index], report));
  }
  return run_all(world.scenario(), world.network(), runners, report);
}

Status run_steps(const Scenario& scenario, Network& network, const std::vector<Stepper*>& steppers,
                 Report& report) {
  std::vector<std::unique_ptr<Runner>> runners;
  for (std::size_t index = 0; index < steppers.size(); ++index) {
    runners.push_back(std::make_unique<Runner>(scenario, network, Rank(static_cast<int>(index)),
                                               nullptr, *steppers[index], report));
  }
  return run_all(scenario, network, runners, report);
}

}  // namespace dunlin::simulate
