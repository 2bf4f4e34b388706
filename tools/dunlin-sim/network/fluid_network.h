// FluidNetwork: transfers of bulk data that share links, in virtual time, modeled as fluids. The
// rates are max-min fair at each moment: a transfer is as fast as the most contended of its links
// allows. There are no packets and no queues; the model covers contention alone.
//
// A transfer may use a link more than once, as a ring all-reduce does when its edges share a NIC.
// The same calls give the same run. Owner thread only; actions run inside step().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <queue>
#include <vector>

namespace dunlin::simulate {

class FluidNetwork {
 public:
  using Link = std::size_t;
  using Action = std::function<void()>;

  // The capacity is in bytes per second; 0: unlimited.
  Link add_link(double bandwidth);
  double now() const { return now_; }  // seconds
  void after(double seconds, Action action);
  // Each mention of a link takes the rate of the transfer from it once more.
  void transfer(double bytes, const std::vector<Link>& links, Action done);
  // Advances to the next event; returns false when there is none.
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
    std::uint64_t seen = 0;  // the round that gave it its rate
    std::vector<Use> uses;
    Action done;
  };
  struct LinkState {
    double bandwidth = 0;
    std::vector<Flow*> flows;  // those that use it, in the order in which they began
    double mentions = 0;       // by all flows
    // While rates are assigned: the capacity that is left, the mentions by flows without a rate,
    // and the share of each mention.
    double left = 0;
    double wanted = 0;
    double share = 0;
    bool is_touched = false;
    std::uint64_t seen = 0;  // as of flows
  };
  // A link and the share that it had when it was put into the heap.
  struct Offer {
    double share = 0;
    Link link = 0;
    bool operator>(const Offer& other) const {
      return share != other.share ? share > other.share : link > other.link;
    }
  };

  void share_links();
  void find_affected();
  void fix_rates(LinkState& tightest);
  void offer(Link link);
  void advance(double to);
  bool run_timer();
  void remove(std::list<Flow>::iterator flow);

  std::vector<LinkState> links_;
  std::list<Flow> flows_;       // in the order in which they began
  std::vector<Link> changed_;   // links of flows that have begun or ended since rates were assigned
  std::uint64_t round_ = 0;     // the assignment of rates
  std::vector<Link> affected_;  // in this round
  std::vector<Offer> offers_;   // a heap with the least share in front
  std::size_t unfixed_ = 0;     // flows without a rate, in share_links()
  std::vector<Link> touched_;   // of fix_rates()
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  double now_ = 0;
  std::uint64_t order_ = 0;
};

}  // namespace dunlin::simulate
