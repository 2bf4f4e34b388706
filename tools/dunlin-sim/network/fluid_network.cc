#include "tools/dunlin-sim/network/fluid_network.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace dunlin::simulate {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

FluidNetwork::Link FluidNetwork::add_link(double bandwidth) {
  LinkState link;
  link.bandwidth = bandwidth > 0 ? bandwidth : kNever;
  links_.push_back(std::move(link));
  return links_.size() - 1;
}

void FluidNetwork::after(double seconds, Action action) {
  timers_.push({now_ + seconds, order_++, std::move(action)});
}

void FluidNetwork::transfer(double bytes, const std::vector<Link>& links, Action done) {
  Flow flow;
  flow.left = bytes;
  for (const Link link : links) {
    if (links_[link].bandwidth == kNever) continue;
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
  for (const Use& use : flows_.back().uses) {
    links_[use.link].flows.push_back(&flows_.back());
    links_[use.link].mentions += use.times;
    changed_.push_back(use.link);
  }
}

// Collects all links that flows connect, directly or through others, to one that has changed. Rates
// elsewhere do not change.
void FluidNetwork::find_affected() {
  ++round_;
  affected_.clear();
  unfixed_ = 0;
  const auto visit = [this](Link link) {
    if (std::exchange(links_[link].seen, round_) != round_) affected_.push_back(link);
  };
  for (const Link link : changed_) visit(link);
  changed_.clear();
  for (std::size_t i = 0; i < affected_.size(); ++i) {
    for (Flow* const flow : links_[affected_[i]].flows) {
      if (std::exchange(flow->seen, round_) == round_) continue;
      flow->is_fixed = false;
      ++unfixed_;
      for (const Use& use : flow->uses) visit(use.link);
    }
  }
}

// Progressive filling: the link with the least share fixes the rates of its users, then the next
// one. Shares change only on links whose users got rates, so a heap finds the next link. Offers
// that are no longer the share of their link are skipped.
void FluidNetwork::share_links() {
  find_affected();
  offers_.clear();
  for (const Link link : affected_) {
    LinkState& state = links_[link];
    if (state.flows.empty()) continue;
    state.left = state.bandwidth;
    state.wanted = state.mentions;
    state.share = state.left / state.wanted;
    offers_.push_back({state.share, link});
  }
  std::make_heap(offers_.begin(), offers_.end(), std::greater<>());
  while (unfixed_ > 0) {
    const Offer least = offers_.front();
    std::pop_heap(offers_.begin(), offers_.end(), std::greater<>());
    offers_.pop_back();
    LinkState& tightest = links_[least.link];
    if (tightest.wanted > 0 && tightest.share == least.share) fix_rates(tightest);
  }
}

void FluidNetwork::offer(Link link) {
  LinkState& state = links_[link];
  if (state.wanted <= 0) return;
  state.share = state.left / state.wanted;
  offers_.push_back({state.share, link});
  std::push_heap(offers_.begin(), offers_.end(), std::greater<>());
}

void FluidNetwork::fix_rates(LinkState& tightest) {
  const double rate = tightest.share;
  touched_.clear();
  for (Flow* const flow : tightest.flows) {
    if (flow->is_fixed) continue;
    flow->is_fixed = true;
    flow->rate = rate;
    --unfixed_;
    for (const Use& use : flow->uses) {
      LinkState& used = links_[use.link];
      used.left -= use.times * rate;
      used.wanted -= use.times;
      if (!std::exchange(used.is_touched, true)) touched_.push_back(use.link);
    }
  }
  for (const Link link : touched_) {
    links_[link].is_touched = false;
    offer(link);
  }
}

void FluidNetwork::advance(double to) {
  if (to == now_) return;
  for (Flow& flow : flows_) flow.left -= flow.rate * (to - now_);
  now_ = to;
}

void FluidNetwork::remove(std::list<Flow>::iterator flow) {
  for (const Use& use : flow->uses) {
    LinkState& used = links_[use.link];
    used.flows.erase(std::find(used.flows.begin(), used.flows.end(), &*flow));
    used.mentions -= use.times;
    changed_.push_back(use.link);
  }
  flows_.erase(flow);
}

bool FluidNetwork::run_timer() {
  Action action = timers_.top().action;
  advance(timers_.top().at);
  timers_.pop();
  action();
  return true;
}

bool FluidNetwork::step() {
  // Transfers that begin at this moment come first, so that rates are assigned once for all of
  // them.
  if (!timers_.empty() && timers_.top().at <= now_) return run_timer();
  if (!changed_.empty()) share_links();
  auto first = flows_.end();
  double end = kNever;
  for (auto flow = flows_.begin(); flow != flows_.end(); ++flow) {
    const double at = now_ + std::max(0.0, flow->left) / flow->rate;
    if (at < end) {
      end = at;
      first = flow;
    }
  }
  if (!timers_.empty() && timers_.top().at <= end) return run_timer();
  if (first == flows_.end()) return false;
  advance(end);
  Action done = std::move(first->done);
  remove(first);
  done();
  return true;
}

}  // namespace dunlin::simulate
