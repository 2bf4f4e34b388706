#include "tools/dunlin-sim/group_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <utility>

#include "collectives/partial/group_generator.h"
#include "collectives/partial/static_schedule.h"

namespace dunlin::simulate {
namespace {

using collective::Group;
using collective::GroupGenerator;
using collective::GroupNotice;
using collective::GroupNotices;
using collective::GroupPolicy;
using collective::StaticSchedule;

// On a cluster, as long as that runs.
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
      for (const Rank to : everybody()) cluster_.pull(to, [this, to] { cluster_.finish(to); });
    });
  }
  int pushed_ = 0;
};

class AllReduce final : public Method {
 public:
  using Method::Method;

 private:
  void computed(Rank) override {
    if (++waiting_ < cluster_.workers()) return;
    waiting_ = 0;
    cluster_.all_reduce(everybody(), [this] {
      for (const Rank rank : everybody()) cluster_.finish(rank);
    });
  }
  int waiting_ = 0;
};

class AdPsgd final : public Method {
 public:
  explicit AdPsgd(GroupCluster& cluster)
      : Method(cluster),
        random_(cluster.setting().seed),
        is_averaging_(static_cast<std::size_t>(cluster.workers())) {}

 private:
  struct Pair {
    Rank active;
    Rank passive;
  };

  void computed(Rank rank) override {
    const auto others = static_cast<std::size_t>(cluster_.workers() - 1);
    if (others == 0) return cluster_.finish(rank);
    const int other = static_cast<int>(random_.below(others));
    waiting_.push_back({rank, Rank(other < rank.value() ? other : other + 1)});
    start_free_ones();
  }

  void start_free_ones() {
    // Who waits longer goes first; nobody holds one worker while it waits for another.
    for (auto pair = waiting_.begin(); pair != waiting_.end();) {
      if (is_averaging_[pair->active.index()] || is_averaging_[pair->passive.index()]) {
        ++pair;
        continue;
      }
      average(*pair);
      pair = waiting_.erase(pair);
    }
  }

  void average(Pair pair) {
    is_averaging_[pair.active.index()] = is_averaging_[pair.passive.index()] = true;
    cluster_.send(pair.active, pair.passive, [this, pair] {
      cluster_.send(pair.passive, pair.active, [this, pair] {
        is_averaging_[pair.active.index()] = is_averaging_[pair.passive.index()] = false;
        cluster_.finish(pair.active);
        start_free_ones();
      });
    });
  }

  collective::GroupRandom random_;
  std::vector<bool> is_averaging_;
  std::list<Pair> waiting_;
};

// Partial all-reduces: who has come to which group.
class Groups : public Method {
 public:
  using Method::Method;

 protected:
  void come(Rank rank, const Group& group) {
    if (++come_[group.sequence] < group.ranks.size()) return;
    come_.erase(group.sequence);
    cluster_.all_reduce(group.ranks, [this, group] { reduced(group); });
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
  void computed(Rank rank) override {
    come(rank, schedule_.group_of(cluster_.iteration(rank), rank));
  }
  void reduced(const Group& group) override {
    for (const Rank rank : group.ranks) cluster_.finish(rank);
  }
  StaticSchedule schedule_;
};

// Asks, answers and ends of groups take setting.message each way.
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

  void computed(Rank rank) override {
    say([this, rank](GroupNotices& notices) {
      return generator_.ask(rank, cluster_.iteration(rank), workers_[rank.index()].last_done,
                            notices);
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
    case GroupMethod::kAllReduce:
      return std::unique_ptr<Method>(std::make_unique<AllReduce>(cluster));
    case GroupMethod::kAdPsgd:
      return std::unique_ptr<Method>(std::make_unique<AdPsgd>(cluster));
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

}  // namespace

const char* to_string(GroupMethod method) {
  switch (method) {
    case GroupMethod::kParameterServer:
      return "parameter-server";
    case GroupMethod::kAllReduce:
      return "all-reduce";
    case GroupMethod::kAdPsgd:
      return "ad-psgd";
    case GroupMethod::kStatic:
      return "static";
    case GroupMethod::kRandom:
      return "random";
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
  if (per_second <= 0) return Status(Code::kInternal, fmt::format("{} hangs", to_string(method)));
  if (!std::isfinite(per_second))
    return Status(Code::kInvalidArgument,
                  fmt::format("{} takes no time: computations, messages or links must take some",
                              to_string(method)));
  return per_second;
}

}  // namespace dunlin::simulate
