// Workers that compute, ask a group generator for groups, and reduce, in virtual time, with
// messages that take random times. They do everything that generator.h says about workers and
// services, deaths included. Every step goes through GroupChecker.
#pragma once

#include <deque>
#include <map>
#include <queue>
#include <string>
#include <vector>

#include "collectives/groups/generator.h"
#include "tests/support/group_check.h"

namespace dunlin::collective::testing {

struct PartialSetting {
  GroupOptions options;
  std::uint64_t iterations = 6;  // per worker
  std::uint64_t seed = 1;
  std::uint64_t longest_message = 5;
  std::uint64_t longest_compute = 20;
  int slow = -1;  // a worker that computes five times as long
  struct Death {
    int rank = 0;
    std::uint64_t at = 0;
  };
  std::vector<Death> deaths;
  bool repeats_asks = false;
};

class PartialWorld {
 public:
  explicit PartialWorld(const PartialSetting& setting);

  // Runs until all workers are done with their iterations, or dead.
  Status run();
  // The groups whose leaders have reduced them, in that order.
  const std::vector<Group>& reduced() const { return reduced_; }
  std::uint64_t broken() const { return broken_; }
  std::uint64_t steps() const { return steps_; }

 private:
  enum class Kind : std::uint8_t { kComputed, kFinished, kDetected, kDeath, kSaid, kTold };
  struct Said {
    enum class What : std::uint8_t { kAsk, kDone, kFail, kLost } what{};
    std::uint64_t iteration = 0;
    std::uint64_t sequence = 0;
  };
  struct Event {
    std::uint64_t at = 0;
    std::uint64_t order = 0;
    Kind kind{};
    int rank = 0;
    std::uint64_t sequence = 0;  // of the group
    Said said{};
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Worker {
    bool is_alive = true;
    bool is_computing = true;
    bool is_inside = false;
    bool is_over = false;
    bool is_failing = false;  // has reported a failure, and waits for the notice
    std::uint64_t iteration = 0;
    std::uint64_t seen = 0;  // the last group that it joined
    std::uint64_t done = 0;  // the last group that it finished
    GroupNotice current;
    std::deque<GroupNotice> inbox;
    std::deque<GroupNotice> on_the_way;
    std::uint64_t last_said_at = 0;
    std::uint64_t last_told_at = 0;
  };

  std::uint64_t below(std::uint64_t bound) { return random_.below(bound); }
  Worker& worker(int rank) { return workers_[static_cast<std::size_t>(rank)]; }
  void post(std::uint64_t delay, Event event);
  void say(int rank, Said said);
  void ask(int rank);
  void compute(int rank);
  bool is_doomed(const Group& group) const;

  Status step(const Event& event);
  Status hear(int rank, const Said& said);
  Status deliver(const GroupNotices& notices);
  Status look(int rank);  // at its inbox
  Status join(int rank, const GroupNotice& notice);
  Status finish(int rank);
  Status give_up(int rank, bool ask_again);
  Status die(int rank);

  PartialSetting setting_;
  GroupRandom random_;
  GroupGenerator generator_;
  GroupChecker checker_;
  std::vector<Worker> workers_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::map<std::uint64_t, std::size_t> arrived_;  // members, by group
  std::uint64_t now_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t broken_ = 0;
  std::vector<Group> reduced_;
};

}  // namespace dunlin::collective::testing
