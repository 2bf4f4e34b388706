#include "apps/consensus/push_sum.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "apps/consensus/topology.h"
#include "collectives/rma/neighbor_window.h"
#include "runtime/random.h"

namespace dunlin::consensus {
namespace {

using Window = collective::NeighborWindow<double>;

// A rank that receives nothing for long keeps halving its values. Below this limit it only collects
// until something has come, so that x and p keep all their digits.
constexpr double kLeastWeight = 1e-100;

constexpr std::uint64_t kValues = 0;  // streams of a seed, followed by those of the ranks
constexpr std::uint64_t kPauses = 1;

class Consensus {
 public:
  Consensus(transport::Fabric& fabric, collective::Communicator& communicator, Ranks& ranks,
            const PushSumOptions& options)
      : fabric_(fabric),
        communicator_(communicator),
        ranks_(ranks),
        options_(options),
        pauses_(options.seed, kPauses, static_cast<std::uint64_t>(fabric.rank().value())) {}

  Status prepare(const collective::Graph& graph);
  Result<PushSumReport> run();

 private:
  Status round();
  void record();
  void pause();
  template <typename Work>
  Status until_all_are_here(Work&& work);
  Status collect();
  Result<PushSumReport> report();
  Vector estimate();

  transport::Fabric& fabric_;
  collective::Communicator& communicator_;
  Ranks& ranks_;
  const PushSumOptions& options_;
  Random pauses_;
  std::unique_ptr<Window> window_;
  std::vector<collective::WeightedPeer> peers_;
  double kept_ = 1;
  Vector average_;
  double scale_ = 1;  // the mass per rank at the start
  Trajectory trajectory_;
  double rounds_ = 0;
  double deposits_ = 0;
};

Status Consensus::prepare(const collective::Graph& graph) {
  const int rank = fabric_.rank().value();
  Random random(options_.seed, kValues, static_cast<std::uint64_t>(rank));
  Vector own(options_.dimension);
  for (double& value : own) value = 1 + random.normal();
  average_ = own;
  DUNLIN_TRY(ranks_.sum(average_));
  for (double& value : average_) value /= ranks_.size();
  // Sums are compared with the values that went into them, which cannot have canceled out.
  scale_ = norm(own);
  DUNLIN_TRY(ranks_.sum({&scale_, 1}));

  std::vector<Rank> members;
  for (int i = 0; i < fabric_.size(); ++i) members.emplace_back(i);
  collective::WindowOptions window;
  window.name = "push-sum";
  DUNLIN_ASSIGN(
      window.neighborhood,
      collective::neighborhood_of(graph, collective::Weighting::kUniform, members, fabric_.rank()));
  window.count = options_.dimension;
  window.is_zeroed = true;
  const int peers = static_cast<int>(window.neighborhood.out.size());
  const double share = share_of(1 + peers);
  kept_ = 1 - peers * share;
  for (const Rank peer : window.neighborhood.out) peers_.push_back({peer, share});
  DUNLIN_ASSIGN(window_, Window::prepare(fabric_, window, own));
  return window_->connect();
}

Vector Consensus::estimate() {
  Vector estimate(window_->self().begin(), window_->self().end());
  for (double& value : estimate) value /= window_->p();
  return estimate;
}

Status Consensus::collect() {
  DUNLIN_ASSIGN(const auto report, window_->update_then_collect());
  deposits_ += static_cast<double>(report.deposits);
  return Status::ok();
}

void Consensus::record() {
  const auto round = static_cast<std::uint64_t>(rounds_);
  if (round % options_.record_every == 0 || round == options_.rounds) {
    trajectory_.record(round, estimate());
  }
}

Status Consensus::round() {
  if (window_->p() >= kLeastWeight) {
    DUNLIN_TRY(window_->accumulate(peers_, kept_).status());
  }
  fabric_.progress();
  DUNLIN_TRY(collect());
  rounds_ += 1;
  return Status::ok();
}

void Consensus::pause() {
  const double longest = static_cast<double>(options_.longest_pause.count());
  const Duration pause(static_cast<Duration::rep>(longest * pauses_.uniform()));
  // If there are fewer cores than ranks, the other ranks get their turn in either case.
  if (pause > Duration::zero()) {
    std::this_thread::sleep_for(pause);
  } else {
    std::this_thread::yield();
  }
}

// Announces that this rank has done its rounds, and continues at its own pace until all have.
template <typename Work>
Status Consensus::until_all_are_here(Work&& work) {
  const TimePoint end = fabric_.clock().now() + fabric_.config().deadline +
                        static_cast<Duration::rep>(options_.rounds) * options_.longest_pause;
  DUNLIN_ASSIGN(const auto all_here,
                communicator_.start({collective::Collective::kBarrier, nullptr, nullptr, 0}));
  while (fabric_.clock().now() < end) {
    if (Status status = communicator_.test(all_here); !status.is_busy()) return status;
    DUNLIN_TRY(work());
    pause();
  }
  return communicator_.wait(all_here, Duration::zero());
}

Result<PushSumReport> Consensus::run() {
  trajectory_.record(0, estimate());
  while (static_cast<std::uint64_t>(rounds_) < options_.rounds) {
    DUNLIN_TRY(round());
    record();
    pause();
  }
  // A rank that stopped here would swallow what others still send to it, while they give away more
  // and more of their values. Therefore all ranks continue until none has rounds left.
  DUNLIN_TRY(until_all_are_here([&] { return round(); }));
  // Nothing is in transit when every rank has seen its deposits delivered.
  DUNLIN_TRY(window_->flush(fabric_.config().deadline));
  DUNLIN_TRY(until_all_are_here([&] { return window_->progress(); }));
  DUNLIN_TRY(collect());
  return report();
}

Result<PushSumReport> Consensus::report() {
  PushSumReport report;
  DUNLIN_ASSIGN(report.history, trajectory_.compare(average_, ranks_));

  Vector sums(window_->self().begin(), window_->self().end());
  sums.insert(sums.end(), {window_->p(), rounds_, deposits_});
  DUNLIN_TRY(ranks_.sum(sums));
  Vector mass(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(options_.dimension));
  Vector before = average_;
  for (double& value : before) value *= ranks_.size();
  report.mass_error = distance(mass, before) / scale_;
  report.weight_error = std::abs(sums[options_.dimension] / ranks_.size() - 1);
  report.rounds = static_cast<std::uint64_t>(sums[options_.dimension + 1]);
  report.deposits = static_cast<std::uint64_t>(sums[options_.dimension + 2]);

  report.error_max = distance(estimate(), average_) / norm(average_);
  DUNLIN_TRY(ranks_.max({&report.error_max, 1}));
  return report;
}

}  // namespace

Result<PushSumReport> run_push_sum(transport::Fabric& fabric,
                                   collective::Communicator& communicator, Ranks& ranks,
                                   const collective::Graph& graph, const PushSumOptions& options) {
  if (options.dimension == 0 || options.record_every == 0) {
    return Status(Code::kInvalidArgument, "push-sum of no values, or recorded every 0 rounds");
  }
  Consensus consensus(fabric, communicator, ranks, options);
  DUNLIN_TRY(consensus.prepare(graph));
  auto report = consensus.run();
  // Neighbors may write into the window until all ranks are here.
  DUNLIN_TRY(fabric.bootstrap().barrier("push-sum", fabric.config().deadline));
  return report;
}

}  // namespace dunlin::consensus
