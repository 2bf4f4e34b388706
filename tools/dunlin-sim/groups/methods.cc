#include "tools/dunlin-sim/groups/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <utility>

#include "collectives/groups/generator.h"
#include "collectives/groups/static_schedule.h"

namespace dunlin::simulate {
namespace {

using collective::Group;
using collective::GroupGenerator;
using collective::GroupNotice;
using collective::GroupNotices;
using collective::GroupPolicy;
using collective::StaticSchedule;

// The state of a method on a cluster.
class Method {
 public:
  explicit Method(GroupCluster& cluster) : cluster_(cluster) {
    cluster_.computed = [this](Rank rank) { computed(rank); };
  }
  virtual ~Method() = default;
  virtual Status status() const { return Status::ok(); }

 protected:
  virtual void computed(Rank rank) = 0;

  std::vector<Rank> everybody() const {
    std::vector<Rank> ranks;
    for (int i = 0; i < cluster_.workers(); ++i) ranks.emplace_back(i);
    return ranks;
  }

  GroupCluster& cluster_;
};

class ParameterServer final : public Method {
 public:
  using Method::Method;

 private:
  void computed(Rank rank) override {
    cluster_.push(rank, [this] {
      if (++pushed_ < cluster_.workers()) return;
      pushed_ = 0;
      cluster_.models().serve_mean();
      for (const Rank to : everybody()) {
        cluster_.models().pull(to);
        cluster_.pull(to, [this, to] { cluster_.finish(to); });
      }
    });
  }
  int pushed_ = 0;
};

class AsyncParameterServer final : public Method {
 public:
  using Method::Method;

 private:
  void computed(Rank rank) override {
    cluster_.push(rank, [this, rank] {
      cluster_.models().serve(rank);
      // A model that is on its way back does not change any more.
      cluster_.models().pull(rank);
      cluster_.pull(rank, [this, rank] { cluster_.finish(rank); });
    });
  }
};

class AllReduce final : public Method {
 public:
  using Method::Method;

 private:
  void computed(Rank) override {
    if (++waiting_ < cluster_.workers()) return;
    waiting_ = 0;
    cluster_.all_reduce(everybody(), [this] {
      cluster_.models().step_by_mean();
      for (const Rank rank : everybody()) cluster_.finish(rank);
    });
  }
  int waiting_ = 0;
};

// Methods that average models: a worker takes a step by its own gradient first, and synchronizes
// only at the ends of sections.
class ModelAveraging : public Method {
 public:
  ModelAveraging(GroupCluster& cluster, std::uint64_t section_length)
      : Method(cluster), section_length_(section_length) {}
  explicit ModelAveraging(GroupCluster& cluster)
      : ModelAveraging(cluster, cluster.setting().section_length) {}

 protected:
  virtual void synchronize(Rank rank) = 0;
  // The current section, from 0.
  std::uint64_t section(Rank rank) const { return cluster_.iteration(rank) / section_length_; }

 private:
  void computed(Rank rank) final {
    cluster_.models().step(rank);
    const bool is_last = (cluster_.iteration(rank) + 1) % section_length_ == 0;
    return is_last ? synchronize(rank) : cluster_.finish(rank);
  }
  std::uint64_t section_length_;
};

class LocalSgd final : public ModelAveraging {
 public:
  explicit LocalSgd(GroupCluster& cluster)
      : ModelAveraging(cluster, cluster.setting().local_section_length) {}

 private:
  void synchronize(Rank) override {
    if (++waiting_ < cluster_.workers()) return;
    waiting_ = 0;
    cluster_.all_reduce(everybody(), [this] {
      cluster_.models().average(everybody());
      for (const Rank rank : everybody()) cluster_.finish(rank);
    });
  }
  int waiting_ = 0;
};

// A worker that has computed drafts others at random and averages with them, whatever these do. A
// worker takes part in one averaging at a time, and computes meanwhile, unless it has asked.
class Drafting : public ModelAveraging {
 public:
  Drafting(GroupCluster& cluster, int group_size)
      : ModelAveraging(cluster),
        random_(cluster.setting().seed),
        group_size_(static_cast<std::size_t>(std::min(group_size, cluster.workers()))),
        is_averaging_(static_cast<std::size_t>(cluster.workers())) {}

 protected:
  using Draft = std::vector<Rank>;  // the worker that has asked comes first

  // Averages, and calls release(), and the cluster's finish() for the worker that has asked.
  virtual void average(const Draft& draft) = 0;

  void ask(Rank rank) {
    if (group_size_ < 2) return cluster_.finish(rank);
    Draft draft{rank};
    std::vector<Rank> others = everybody();
    std::erase(others, rank);
    while (draft.size() < group_size_) {
      const auto drawn = others.begin() + static_cast<std::ptrdiff_t>(random_.below(others.size()));
      draft.push_back(*drawn);
      others.erase(drawn);
    }
    waiting_.push_back(std::move(draft));
    start_free_ones();
  }
  void release(const Draft& draft) {
    for (const Rank rank : draft) is_averaging_[rank.index()] = false;
    start_free_ones();
  }

 private:
  void synchronize(Rank rank) override { ask(rank); }

  // The request that waits longest goes first. No request holds one worker while it waits for
  // another.
  void start_free_ones() {
    for (auto draft = waiting_.begin(); draft != waiting_.end();) {
      const auto is_taken = [this](Rank rank) { return is_averaging_[rank.index()]; };
      if (std::ranges::any_of(*draft, is_taken)) {
        ++draft;
        continue;
      }
      for (const Rank rank : *draft) is_averaging_[rank.index()] = true;
      average(*draft);
      draft = waiting_.erase(draft);
    }
  }

  collective::GroupRandom random_;
  const std::size_t group_size_;
  std::vector<bool> is_averaging_;
  std::list<Draft> waiting_;
};

class AdPsgd final : public Drafting {
 public:
  explicit AdPsgd(GroupCluster& cluster) : Drafting(cluster, 2) {}

 private:
  void average(const Draft& draft) override {
    cluster_.send(draft[0], draft[1], [this, draft] {
      // The worker that has asked does not change its model until the average is back.
      cluster_.models().average(draft);
      cluster_.send(draft[1], draft[0], [this, draft] {
        cluster_.finish(draft[0]);
        release(draft);
      });
    });
  }
};

// Requests to the group generator, its answers and the ends of groups take setting.message each.
class RandomAtOnce final : public Drafting {
 public:
  explicit RandomAtOnce(GroupCluster& cluster)
      : Drafting(cluster, cluster.setting().group_size),
        message_(to_seconds(cluster.setting().message)) {}

 private:
  void synchronize(Rank rank) override {
    cluster_.network().after(message_, [this, rank] { ask(rank); });
  }
  void average(const Draft& draft) override {
    cluster_.network().after(message_, [this, draft] {
      cluster_.all_reduce(draft, [this, draft] {
        cluster_.models().average(draft);
        cluster_.finish(draft[0]);
        cluster_.network().after(message_, [this, draft] { release(draft); });
      });
    });
  }
  const double message_;
};

// Partial all-reduces: tracks which workers have arrived at which group.
class Groups : public ModelAveraging {
 public:
  using ModelAveraging::ModelAveraging;

 protected:
  void come(Rank rank, const Group& group) {
    if (++come_[group.sequence] < group.ranks.size()) return;
    come_.erase(group.sequence);
    cluster_.all_reduce(group.ranks, [this, group] {
      cluster_.models().average(group.ranks);
      reduced(group);
    });
  }
  virtual void reduced(const Group& group) = 0;

 private:
  std::map<std::uint64_t, std::size_t> come_;
};

class StaticGroups final : public Groups {
 public:
  StaticGroups(GroupCluster& cluster, StaticSchedule schedule)
      : Groups(cluster), schedule_(schedule) {}

 private:
  void synchronize(Rank rank) override { come(rank, schedule_.group_of(section(rank), rank)); }
  void reduced(const Group& group) override {
    for (const Rank rank : group.ranks) cluster_.finish(rank);
  }
  StaticSchedule schedule_;
};

// Requests, answers and ends of groups take setting.message in each direction.
class GeneratedGroups final : public Groups {
 public:
  GeneratedGroups(GroupCluster& cluster, GroupGenerator generator)
      : Groups(cluster),
        generator_(std::move(generator)),
        workers_(static_cast<std::size_t>(cluster.workers())) {}

  Status status() const override { return status_; }

 private:
  struct Worker {
    std::uint64_t last_done = 0;
    bool then_computes = false;
  };

  void synchronize(Rank rank) override {
    say([this, rank](GroupNotices& notices) {
      return generator_.ask(rank, section(rank), workers_[rank.index()].last_done, notices);
    });
  }

  template <typename Call>
  void say(Call call) {
    const double message = to_seconds(cluster_.setting().message);
    cluster_.network().after(message, [this, message, call] {
      GroupNotices notices;
      if (Status status = call(notices); !status.is_ok()) status_ = std::move(status);
      for (GroupNotice& notice : notices)
        cluster_.network().after(message, [this, notice = std::move(notice)] { hear(notice); });
    });
  }

  void hear(const GroupNotice& notice) {
    Worker& worker = workers_[notice.to.index()];
    worker.then_computes = notice.then_compute;
    come(notice.to, notice.group);
  }

  void reduced(const Group& group) override {
    for (const Rank rank : group.ranks) {
      Worker& worker = workers_[rank.index()];
      worker.last_done = group.sequence;
      if (worker.then_computes) cluster_.finish(rank);
    }
    if (group.is_alone()) return;
    say([this, leader = group.leader(), sequence = group.sequence](GroupNotices& notices) {
      return generator_.done(leader, sequence, notices);
    });
  }

  GroupGenerator generator_;
  std::vector<Worker> workers_;
  Status status_;
};

Result<std::unique_ptr<Method>> make_method(GroupCluster& cluster, GroupMethod method) {
  const GroupSetting& setting = cluster.setting();
  switch (method) {
    case GroupMethod::kParameterServer:
      return std::unique_ptr<Method>(std::make_unique<ParameterServer>(cluster));
    case GroupMethod::kAsyncParameterServer:
      return std::unique_ptr<Method>(std::make_unique<AsyncParameterServer>(cluster));
    case GroupMethod::kAllReduce:
      return std::unique_ptr<Method>(std::make_unique<AllReduce>(cluster));
    case GroupMethod::kLocalSgd:
      return std::unique_ptr<Method>(std::make_unique<LocalSgd>(cluster));
    case GroupMethod::kAdPsgd:
      return std::unique_ptr<Method>(std::make_unique<AdPsgd>(cluster));
    case GroupMethod::kRandomAtOnce:
      return std::unique_ptr<Method>(std::make_unique<RandomAtOnce>(cluster));
    case GroupMethod::kStatic: {
      DUNLIN_ASSIGN(const auto schedule, StaticSchedule::make(setting.layout));
      return std::unique_ptr<Method>(std::make_unique<StaticGroups>(cluster, schedule));
    }
    default:
      break;
  }
  collective::GroupOptions options;
  options.policy = method == GroupMethod::kRandom     ? GroupPolicy::kRandom
                   : method == GroupMethod::kBuffered ? GroupPolicy::kBuffered
                                                      : GroupPolicy::kSmart;
  options.layout = setting.layout;
  options.group_size = setting.group_size;
  options.slowdown_threshold = setting.slowdown_threshold;
  options.intra_filter = setting.intra_filter;
  options.most_alone = setting.most_alone;
  options.seed = setting.seed;
  DUNLIN_ASSIGN(auto generator, GroupGenerator::make(options));
  return std::unique_ptr<Method>(std::make_unique<GeneratedGroups>(cluster, std::move(generator)));
}

Status hangs(GroupMethod method) {
  return {Code::kInternal, fmt::format("{} hangs", to_string(method))};
}

// Interpolates between two evaluations as if the loss fell linearly.
LearningMoment moment_of(double loss, const LearningMoment& before, const LearningMoment& after) {
  const double share =
      before.loss > after.loss ? (before.loss - loss) / (before.loss - after.loss) : 1;
  return {before.iterations + share * (after.iterations - before.iterations),
          before.seconds + share * (after.seconds - before.seconds), loss};
}

}  // namespace

const char* to_string(GroupMethod method) {
  switch (method) {
    case GroupMethod::kParameterServer:
      return "parameter-server";
    case GroupMethod::kAsyncParameterServer:
      return "async-parameter-server";
    case GroupMethod::kAllReduce:
      return "all-reduce";
    case GroupMethod::kLocalSgd:
      return "local-sgd";
    case GroupMethod::kAdPsgd:
      return "ad-psgd";
    case GroupMethod::kStatic:
      return "static";
    case GroupMethod::kRandom:
      return "random";
    case GroupMethod::kRandomAtOnce:
      return "random-at-once";
    case GroupMethod::kBuffered:
      return "buffered";
    default:
      return "smart";
  }
}

Result<double> measure_method(const GroupSetting& setting, GroupMethod method,
                              const Slowdown& slowdown) {
  DUNLIN_TRY(collective::check(setting.layout));
  GroupCluster cluster(setting, slowdown);
  DUNLIN_ASSIGN(const auto made, make_method(cluster, method));
  const double per_second = cluster.run();
  DUNLIN_TRY(made->status());
  if (per_second <= 0) return hangs(method);
  if (!std::isfinite(per_second))
    return Status(Code::kInvalidArgument,
                  fmt::format("{} takes no time: computations, messages or links must take some",
                              to_string(method)));
  return per_second;
}

Result<LearningRun> learn_method(const GroupSetting& setting, GroupMethod method,
                                 const Slowdown& slowdown, const LearningProblem& problem,
                                 const LearningOptions& options) {
  DUNLIN_TRY(collective::check(setting.layout));
  const int workers = setting.layout.workers();
  GroupCluster cluster(setting, slowdown, GroupModels(problem, options, workers));
  DUNLIN_ASSIGN(const auto made, make_method(cluster, method));
  LearningRun run;
  const auto look = [&] {
    run.curve.push_back({static_cast<double>(cluster.finished()) / workers, cluster.network().now(),
                         cluster.models().loss()});
  };
  look();
  if (run.curve.back().loss <= options.target_loss) run.target = run.curve.back();
  cluster.start();
  std::uint64_t looks = 1;
  while (!run.target && looks * options.look_every <= options.most_iterations) {
    const bool goes_on = cluster.step();
    DUNLIN_TRY(made->status());
    if (!goes_on) return hangs(method);
    if (cluster.finished() < looks * options.look_every * static_cast<std::uint64_t>(workers))
      continue;
    ++looks;
    look();
    const LearningMoment& now = run.curve.back();
    if (!std::isfinite(now.loss)) break;
    if (now.loss <= options.target_loss)
      run.target = moment_of(options.target_loss, run.curve[run.curve.size() - 2], now);
  }
  return run;
}

}  // namespace dunlin::simulate
