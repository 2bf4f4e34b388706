#include "tools/dunlin-sim/straggler/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "collectives/straggler/straggler_ring.h"
#include "runtime/bootstrap/bootstrap.h"
#include "transports/sim/network.h"

namespace dunlin::simulate {
namespace {

using collective::LatenessMode;
using collective::RingStep;
using collective::StragglerOptions;
using transport::Fabric;
using transport::sim::Actor;
using transport::sim::Network;
using Ring = collective::StragglerRing<double>;

constexpr std::uint32_t kSlowMember = 1;  // B in the paper
constexpr std::uint32_t kSlowChunk = 0;   // a0 + b0 in the paper

constexpr Duration kLongestExtra = std::chrono::microseconds(30);
constexpr Duration kExtraGrid = std::chrono::microseconds(1);
constexpr double kAlphaGrid[] = {1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0};
constexpr Duration kExtrasByAlpha[] = {std::chrono::microseconds(6), std::chrono::microseconds(10),
                                       std::chrono::microseconds(20)};
constexpr std::uint64_t kMostEvents = 1'000'000;

Duration scaled(double factor, Duration duration) {
  return Duration(std::llround(factor * static_cast<double>(duration.count())));
}

double microseconds(Duration duration) {
  return static_cast<double>(duration.count()) / 1000;
}

// One rank. It steps its ring when something arrives and when it asked to be woken.
class Member final : public Actor {
 public:
  Member(Network& network, Rank rank, Ring& ring) : network_(network), rank_(rank), ring_(ring) {
    network_.set_actor(rank_, this);
    network_.wake_at(rank_, network_.now());
  }
  ~Member() { network_.set_actor(rank_, nullptr); }

  void advance() override {
    if (is_over()) return;
    if (status_.is_ok()) status_ = ring_.start();
    if (!status_.is_error()) status_ = ring_.test();
    if (const auto event = ring_.next_event(); status_.is_busy() && event && event != woken_at_)
      network_.wake_at(rank_, *(woken_at_ = event));
    is_done_ = status_.is_ok();
  }
  bool is_over() const { return is_done_ || status_.is_error(); }
  bool is_done() const { return is_done_; }
  const Status& status() const { return status_; }

 private:
  Network& network_;
  Rank rank_;
  Ring& ring_;
  Status status_;  // kBusy while it runs
  std::optional<TimePoint> woken_at_;
  bool is_done_ = false;
};

// The times of the members' steps.
class StepTimes {
 public:
  StepTimes(const StragglerSetting& setting, Duration extra, const Network& network)
      : setting_(setting), extra_(extra), network_(network) {}

  Duration operator()(const RingStep& step) {
    const bool is_slow = step.member == kSlowMember &&
                         (step.chunk == kSlowChunk || setting_.slowness == Slowness::kEveryStep);
    const Duration work = setting_.step + (is_slow ? extra_ : Duration::zero());
    if (setting_.slowness != Slowness::kOneStepInTurn) return work;
    TimePoint& busy_until = busy_until_[step.member];
    busy_until = std::max(busy_until, network_.now()) + work;
    return busy_until - network_.now();
  }

 private:
  const StragglerSetting& setting_;
  Duration extra_;
  const Network& network_;
  std::map<std::uint32_t, TimePoint> busy_until_;
};

// The ranks of one run, with their network and fabrics.
class Experiment {
 public:
  static Result<std::unique_ptr<Experiment>> create(const StragglerSetting& setting, double alpha,
                                                    Duration extra) {
    std::unique_ptr<Experiment> experiment(new Experiment(setting));
    DUNLIN_TRY(experiment->start(alpha, extra));
    return experiment;
  }

  // Returns the time until the slowest rank has the sum of its chunk.
  Result<Duration> run() {
    std::vector<std::unique_ptr<Member>> members;
    for (std::size_t i = 0; i < rings_.size(); ++i)
      members.push_back(std::make_unique<Member>(*network_, Rank(static_cast<int>(i)), *rings_[i]));
    network_->run(kMostEvents);
    Duration scattered{};
    for (std::size_t i = 0; i < rings_.size(); ++i) {
      DUNLIN_TRY(members[i]->status().is_error() ? members[i]->status() : Status::ok());
      if (!members[i]->is_done())
        return Status(Code::kInternal, fmt::format("rank {} does not end", i));
      const double sum = setting_.ranks;
      const auto data = rings_[i]->data();
      if (!std::all_of(data.begin(), data.end(), [&](double value) { return value == sum; }))
        return Status(Code::kInternal, fmt::format("rank {} has wrong sums", i));
      scattered = std::max(scattered, rings_[i]->report().scattered);
    }
    return scattered;
  }

 private:
  explicit Experiment(const StragglerSetting& setting) : setting_(setting), job_(setting.ranks) {}

  Status start(double alpha, Duration extra) {
    transport::sim::Options network;
    network.ranks = setting_.ranks;
    network.rack = {setting_.transfer(), 0};
    DUNLIN_ASSIGN(network_, Network::create(network));
    DUNLIN_ASSIGN(config_, Config::parse(Environment()));
    config_.transports = {"sim"};
    config_.huge_pages = false;

    StragglerOptions options;
    for (int rank = 0; rank < setting_.ranks; ++rank) options.membership.members.emplace_back(rank);
    options.count = setting_.chunk_bytes / sizeof(double) * options.membership.members.size();
    options.segment_bytes = setting_.chunk_bytes;
    options.depth = setting_.depth;
    options.lateness.mode = alpha == 0 ? LatenessMode::kNever : LatenessMode::kFixed;
    options.lateness.alpha = alpha;
    options.lateness.step = setting_.step;
    options.lateness.transfer = setting_.transfer();
    options.step_time = StepTimes(setting_, extra, *network_);
    for (const Rank rank : options.membership.members) {
      bootstraps_.push_back(job_.bootstrap(rank));
      DUNLIN_ASSIGN(auto fabric, Fabric::create(*bootstraps_.back(), config_, network_->clock(),
                                                nullptr, {network_->factory()}));
      fabrics_.push_back(std::move(fabric));
      DUNLIN_ASSIGN(auto ring, Ring::prepare(*fabrics_.back(), options));
      std::fill(ring->data().begin(), ring->data().end(), 1.0);
      rings_.push_back(std::move(ring));
    }
    for (auto& ring : rings_) DUNLIN_TRY(ring->connect());
    return Status::ok();
  }

  StragglerSetting setting_;
  Config config_;
  std::unique_ptr<Network> network_;
  InProcessJob job_;
  std::vector<std::unique_ptr<Bootstrap>> bootstraps_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  std::vector<std::unique_ptr<Ring>> rings_;
};

}  // namespace

const char* to_string(Slowness slowness) {
  switch (slowness) {
    case Slowness::kOneStep:
      return "one step";
    case Slowness::kOneStepInTurn:
      return "one step, in turn";
    case Slowness::kEveryStep:
      return "every step";
  }
  return "unknown";
}

Duration StragglerSetting::transfer() const {
  return latency + scaled(static_cast<double>(chunk_bytes) / bandwidth, std::chrono::seconds(1));
}

Result<Duration> simulate_straggler(const StragglerSetting& setting, double alpha, Duration extra) {
  DUNLIN_ASSIGN(auto experiment, Experiment::create(setting, alpha, extra));
  return experiment->run();
}

Duration predict_ring(const StragglerSetting& setting, Duration extra) {
  return (setting.ranks - 1) * (setting.step + setting.transfer()) + extra;
}

// B is the slow rank, C its successor, and D the successor of C. Times count from the beginning of
// B's step. D has both parts when that of B has arrived, at T + delta T + T_trans, and that of C,
// which waited for T_t, at T_t + T_trans. Without the strategy D has them at 2 T + delta T + 2
// T_trans. When B arrives last, the gain is (1), which is constant. When C arrives last, it is (2),
// which depends on alpha.
Duration predict_gain(const StragglerSetting& setting, double alpha, Duration extra) {
  const Duration slow_step = setting.step + extra;
  const Duration longest_step = scaled(alpha, setting.step);
  if (slow_step <= longest_step) return {};
  if (slow_step >= longest_step + setting.transfer()) return setting.step + setting.transfer();
  return extra + 2 * setting.step - longest_step;
}

double StragglerPoint::gain() const {
  return 1 - static_cast<double>(strategy.count()) / static_cast<double>(ring.count());
}

double StragglerPoint::gain_predicted() const {
  return 1 - static_cast<double>(strategy_predicted.count()) /
                 static_cast<double>(ring_predicted.count());
}

namespace {

Result<StragglerPoint> measure_beside(Duration ring, const StragglerSetting& setting, double alpha,
                                      Duration extra) {
  StragglerPoint point;
  point.alpha = alpha;
  point.extra = extra;
  point.ring = ring;
  DUNLIN_ASSIGN(point.strategy, simulate_straggler(setting, alpha, extra));
  point.ring_predicted = predict_ring(setting, extra);
  point.strategy_predicted = point.ring_predicted - predict_gain(setting, alpha, extra);
  return point;
}

}  // namespace

Result<StragglerPoint> measure_straggler(const StragglerSetting& setting, double alpha,
                                         Duration extra) {
  DUNLIN_ASSIGN(const Duration ring, simulate_straggler(setting, 0, extra));
  return measure_beside(ring, setting, alpha, extra);
}

namespace {

// A grid and the delta T of the largest gain. Beyond that, the ring takes longer and the gain does
// not change.
std::vector<Duration> all_extras(const StragglerSetting& setting) {
  std::vector<Duration> extras{setting.step + setting.transfer()};
  for (Duration extra{}; extra <= kLongestExtra; extra += kExtraGrid) extras.push_back(extra);
  std::sort(extras.begin(), extras.end());
  extras.erase(std::unique(extras.begin(), extras.end()), extras.end());
  return extras;
}

}  // namespace

Result<StragglerFigures> make_straggler_figures(const StragglerSetting& setting) {
  StragglerFigures figures;
  for (const Slowness slowness : kSlownesses) {
    StragglerSetting varied = setting;
    varied.slowness = slowness;
    StragglerFigures::Best best{slowness, {}};
    std::map<Duration, Duration> rings;  // by delta T; the plain ring has no alpha
    for (const Duration extra : all_extras(setting)) {
      DUNLIN_ASSIGN(rings[extra], simulate_straggler(varied, 0, extra));
    }
    for (const double alpha : kPaperAlphas) {
      for (const auto& [extra, ring] : rings) {
        DUNLIN_ASSIGN(const auto point, measure_beside(ring, varied, alpha, extra));
        if (best.point.alpha == 0 || point.gain() > best.point.gain()) best.point = point;
        if (slowness == setting.slowness) figures.by_extra.push_back(point);
      }
    }
    figures.best.push_back(best);
  }
  for (const Duration extra : kExtrasByAlpha) {
    for (const double alpha : kAlphaGrid) {
      DUNLIN_ASSIGN(const auto point, measure_straggler(setting, alpha, extra));
      figures.by_alpha.push_back(point);
    }
  }
  return figures;
}

namespace {

std::string heading() {
  return fmt::format("{:>6} {:>8} | {:>8} {:>8} {:>7} | {:>8} {:>8} {:>7}\n", "alpha", "delta T",
                     "ring", "strategy", "gain", "ring", "strategy", "gain");
}

std::string row(const StragglerPoint& point) {
  return fmt::format(
      "{:>6.2f} {:>8.2f} | {:>8.3f} {:>8.3f} {:>6.2f}% | {:>8.3f} {:>8.3f} {:>6.2f}%\n",
      point.alpha, microseconds(point.extra), microseconds(point.ring),
      microseconds(point.strategy), 100 * point.gain(), microseconds(point.ring_predicted),
      microseconds(point.strategy_predicted), 100 * point.gain_predicted());
}

nlohmann::ordered_json to_json(const StragglerPoint& point) {
  return {{"alpha", point.alpha},
          {"delta_t_us", microseconds(point.extra)},
          {"ring_us", microseconds(point.ring)},
          {"strategy_us", microseconds(point.strategy)},
          {"gain_percent", 100 * point.gain()},
          {"ring_predicted_us", microseconds(point.ring_predicted)},
          {"strategy_predicted_us", microseconds(point.strategy_predicted)},
          {"gain_predicted_percent", 100 * point.gain_predicted()}};
}

}  // namespace

std::string to_text(const StragglerFigures& figures) {
  std::string text =
      "reduce-scatter with a slow rank, in us: simulated | by equations (1) and (2)\n"
      "(the equations follow the chunk of the slow step alone; the others take their time "
      "anyhow)\n\n"
      "time and gain by delta T (figures 7, 8 and 10):\n" +
      heading();
  // Every second microsecond is enough for the text.
  for (const StragglerPoint& point : figures.by_extra) {
    if (point.extra % std::chrono::microseconds(2) == Duration::zero()) text += row(point);
  }
  text += "\ngain by alpha (figure 9):\n" + heading();
  for (const StragglerPoint& point : figures.by_alpha) text += row(point);
  text += fmt::format("\nbest gain; the paper's: {:.1f}%\n", 100 * kPaperBestGain);
  for (const auto& [slowness, point] : figures.best) {
    text += fmt::format("  slow in {:<18} {:>6.2f}%", to_string(slowness), 100 * point.gain());
    text += point.gain() > 0 ? fmt::format(", at alpha {} and delta T {:.2f} us\n", point.alpha,
                                           microseconds(point.extra))
                             : "\n";
  }
  return text;
}

std::vector<nlohmann::ordered_json> to_json(const StragglerFigures& figures) {
  std::vector<nlohmann::ordered_json> rows;
  const auto add = [&](const char* figure, const StragglerPoint& point) {
    nlohmann::ordered_json made{{"figure", figure}};
    made.update(to_json(point));
    rows.push_back(std::move(made));
  };
  for (const StragglerPoint& point : figures.by_extra) add("by_delta_t", point);
  for (const StragglerPoint& point : figures.by_alpha) add("by_alpha", point);
  for (const auto& [slowness, point] : figures.best) {
    add("best", point);
    rows.back().push_back({"slow_in", to_string(slowness)});
    rows.back().push_back({"paper_gain_percent", 100 * kPaperBestGain});
  }
  return rows;
}

}  // namespace dunlin::simulate
