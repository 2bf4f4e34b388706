#include "tools/dunlin-sim/fluid_network.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace dunlin::simulate {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

FluidNetwork::Link FluidNetwork::add_link(double bandwidth) {
  bandwidths_.push_back(bandwidth > 0 ? bandwidth : kNever);
  return bandwidths_.size() - 1;
}

void FluidNetwork::after(double seconds, Action action) {
  timers_.push({now_ + seconds, order_++, std::move(action)});
}

void FluidNetwork::transfer(double bytes, const std::vector<Link>& links, Action done) {
  Flow flow;
  flow.left = bytes;
  for (const Link link : links) {
    if (bandwidths_[link] == kNever) continue;
    const auto known = std::find_if(flow.uses.begin(), flow.uses.end(),
                                    [&](const Use& use) { return use.link == link; });
    if (known == flow.uses.end()) {
      flow.uses.push_back({link, 1});
    } else {
      known->times += 1;
    }
  }
  if (flow.uses.empty() || bytes <= 0) return after(0, std::move(done));
  flow.done = std::move(done);
  flows_.push_back(std::move(flow));
  share_links();
}

// Progressive filling: the link that gives its users least fixes their rates, then the next one.
void FluidNetwork::share_links() {
  for (Flow& flow : flows_) flow.is_fixed = false;
  std::vector<double> left = bandwidths_;
  std::vector<double> wanted(left.size());
  for (std::size_t fixed = 0; fixed < flows_.size();) {
    std::fill(wanted.begin(), wanted.end(), 0);
    for (const Flow& flow : flows_) {
      if (flow.is_fixed) continue;
      for (const Use& use : flow.uses) wanted[use.link] += use.times;
    }
    double least = kNever;
    Link tightest = 0;
    for (Link link = 0; link < left.size(); ++link) {
      if (wanted[link] == 0 || left[link] / wanted[link] >= least) continue;
      least = left[link] / wanted[link];
      tightest = link;
    }
    for (Flow& flow : flows_) {
      const auto crosses = [&](const Use& use) { return use.link == tightest; };
      if (flow.is_fixed || std::none_of(flow.uses.begin(), flow.uses.end(), crosses)) continue;
      flow.is_fixed = true;
      flow.rate = least;
      ++fixed;
      for (const Use& use : flow.uses) left[use.link] -= use.times * least;
    }
  }
}

void FluidNetwork::advance(double to) {
  for (Flow& flow : flows_) flow.left -= flow.rate * (to - now_);
  now_ = to;
}

bool FluidNetwork::step() {
  std::size_t first = 0;
  double end = kNever;
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    const double at = now_ + std::max(0.0, flows_[i].left) / flows_[i].rate;
    if (at < end) {
      end = at;
      first = i;
    }
  }
  if (!timers_.empty() && timers_.top().at <= end) {
    Action action = timers_.top().action;
    advance(timers_.top().at);
    timers_.pop();
    action();
    return true;
  }
  if (end == kNever) return false;
  advance(end);
  Action done = std::move(flows_[first].done);
  flows_.erase(flows_.begin() + static_cast<std::ptrdiff_t>(first));
  share_links();
  done();
  return true;
}

}  // namespace dunlin::simulate
