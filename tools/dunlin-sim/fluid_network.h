// FluidNetwork: transfers that share links, in virtual time, as fluids: at each moment the rates
// are max-min fair, and a transfer goes as fast as the most contended of its links lets it. No
// packets, no queues: for times of bulk data, of which it keeps what contention is about.
//
// A transfer may use a link more than once, as a ring all-reduce does whose edges share a NIC. Same
// calls, same run. Owner thread only; actions run inside step().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace dunlin::simulate {

class FluidNetwork {
 public:
  using Link = std::size_t;
  using Action = std::function<void()>;

  // In bytes per second; 0: without limit.
  Link add_link(double bandwidth);
  double now() const { return now_; }  // seconds
  void after(double seconds, Action action);
  // Each mention of a link takes the transfer's rate from it once more.
  void transfer(double bytes, const std::vector<Link>& links, Action done);
  // Goes on to the next event; false: there is none.
  bool step();

 private:
  struct Timer {
    double at = 0;
    std::uint64_t order = 0;
    Action action;
    bool operator>(const Timer& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Use {
    Link link = 0;
    double times = 0;
  };
  struct Flow {
    double left = 0;  // bytes
    double rate = 0;
    bool is_fixed = false;
    std::vector<Use> uses;
    Action done;
  };

  void share_links();
  void advance(double to);

  std::vector<double> bandwidths_;
  std::vector<Flow> flows_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  double now_ = 0;
  std::uint64_t order_ = 0;
};

}  // namespace dunlin::simulate
