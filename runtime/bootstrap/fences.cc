#include "runtime/bootstrap/fences.h"

#include <utility>

namespace dunlin {

std::uint64_t Fences::ask(Rank gone, std::span<const Rank> owners) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++last_number_;
  }
  sender_.ask(number, gone, {owners.begin(), owners.end()});
  return number;
}

bool Fences::is_done(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  return done_.erase(number) != 0;
}

int Fences::add_guard(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  guards_.emplace(++last_guard_, std::move(wake));
  return last_guard_;
}

void Fences::remove_guard(int guard) {
  std::vector<Rank> left;
  {
    // In one step, so that nothing becomes due for a guard that is gone.
    const std::lock_guard lock(mutex_);
    guards_.erase(guard);
    for (const auto& [gone, guards] : due_) {
      if (guards.contains(guard)) left.push_back(gone);
    }
  }
  for (const Rank gone : left) confirm(guard, gone);
}

std::vector<Rank> Fences::due(int guard) const {
  const std::lock_guard lock(mutex_);
  std::vector<Rank> ranks;
  for (const auto& [gone, guards] : due_) {
    if (guards.contains(guard)) ranks.push_back(gone);
  }
  return ranks;
}

void Fences::confirm(int guard, Rank gone) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = due_.find(gone);
    if (found == due_.end() || found->second.erase(guard) == 0) return;
    due_count_.fetch_sub(1, std::memory_order_release);
    if (!found->second.empty()) return;
    due_.erase(found);
  }
  sender_.confirm(gone);
}

void Fences::on_revoke(Rank gone) {
  {
    const std::lock_guard lock(mutex_);
    if (!guards_.empty()) {
      std::set<int>& waiting = due_[gone];
      for (const auto& [guard, wake] : guards_) {
        if (waiting.insert(guard).second) due_count_.fetch_add(1, std::memory_order_release);
        wake();
      }
      return;
    }
  }
  sender_.confirm(gone);
}

void Fences::on_fenced(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  done_.insert(number);
  for (const auto& [guard, wake] : guards_) wake();
}

void Fences::cut_off(Status why) {
  const std::lock_guard lock(mutex_);
  if (is_cut_off()) return;
  why_ = std::move(why);
  is_cut_off_.store(true, std::memory_order_release);
  for (const auto& [guard, wake] : guards_) wake();
}

void Fences::lose_coordinator(Status why) {
  const std::lock_guard lock(mutex_);
  why_no_coordinator_ = std::move(why);
  for (const auto& [guard, wake] : guards_) wake();
}

Status Fences::check_coordinator() const {
  const std::lock_guard lock(mutex_);
  return why_no_coordinator_;
}

Status Fences::check() const {
  if (!is_cut_off()) return Status::ok();
  const std::lock_guard lock(mutex_);
  return why_;
}

}  // namespace dunlin
