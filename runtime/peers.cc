#include "runtime/peers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <string>

#include "runtime/process_stat.h"

namespace dunlin {

const char* to_string(PeerState state) {
  switch (state) {
    case PeerState::kAlive:
      return "alive";
    case PeerState::kStalled:
      return "stalled";
    case PeerState::kAbsent:
      return "absent";
    case PeerState::kLeft:
      return "left";
    case PeerState::kDead:
      return "dead";
  }
  return "unknown";
}

namespace {

bool is_final(PeerState state) {
  return state == PeerState::kLeft || state == PeerState::kDead;
}

// The state character of a process; 0 when there is no such process.
char process_state(pid_t pid) {
  const std::string fields = process_stat(pid);
  return fields.empty() ? '\0' : fields.front();
}

}  // namespace

PeerTable::PeerTable(int size, int founders) : peers_(static_cast<std::size_t>(size)) {
  if (founders < 0) return;
  for (int rank = founders; rank < size; ++rank)
    peers_[Rank(rank).index()].state.store(PeerState::kAbsent, std::memory_order_relaxed);
}

std::string PeerTable::describe(Rank rank) const {
  const std::lock_guard lock(mutex_);
  const char* const word = to_string(state(rank));
  const auto found = reasons_.find(rank);
  if (found != reasons_.end()) return fmt::format("{}: {}", word, found->second);
  return state(rank) == PeerState::kLeft ? "left: it has shut down" : word;
}

Status PeerTable::report(Rank rank) const {
  if (state(rank) == PeerState::kAbsent) {
    return Status(Code::kUnavailable, fmt::format("rank {} has not joined the job", rank.value()))
        .with_peer(rank);
  }
  return Status(Code::kPeerDead, fmt::format("rank {} is {}", rank.value(), describe(rank)))
      .with_peer(rank);
}

bool PeerTable::change(Rank rank, PeerState state) {
  std::atomic<PeerState>& now = peers_[rank.index()].state;
  const PeerState before = now.load(std::memory_order_relaxed);
  if (before == state || is_final(before)) return false;
  now.store(state, std::memory_order_relaxed);
  if (is_final(state)) gone_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void PeerTable::mark(Rank rank, PeerState state, std::string reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!change(rank, state)) return;
    if (reason.empty()) {
      reasons_.erase(rank);
    } else {
      reasons_[rank] = std::move(reason);
    }
    // Pairs with the acquire load of version(): a thread that sees the new version sees the state.
    version_.fetch_add(1, std::memory_order_release);
  }
  notify();
}

void PeerTable::mark_left(std::span<const Rank> ranks) {
  {
    const std::lock_guard lock(mutex_);
    bool has_changed = false;
    for (const Rank rank : ranks) {
      if (!change(rank, PeerState::kLeft)) continue;
      reasons_.erase(rank);
      has_changed = true;
    }
    if (!has_changed) return;
    version_.fetch_add(1, std::memory_order_release);  // as in mark()
  }
  notify();
}

void PeerTable::set_local_pid(Rank rank, pid_t pid) {
  peers_[rank.index()].pid.store(pid, std::memory_order_relaxed);
  // Pairs with the acquire load of pids_version(): a thread that sees the new version sees the pid.
  pids_version_.fetch_add(1, std::memory_order_release);
  notify();
}

pid_t PeerTable::local_pid(Rank rank) const {
  return peers_[rank.index()].pid.load(std::memory_order_relaxed);
}

void PeerTable::set_foreign_process(Rank rank, Fd pidfd) {
  {
    const std::lock_guard lock(mutex_);
    foreign_[rank] = std::move(pidfd);
  }
  set_local_pid(rank, kForeignPid);
}

Fd PeerTable::foreign_process(Rank rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = foreign_.find(rank);
  return Fd(found == foreign_.end() ? -1 : fcntl(found->second.get(), F_DUPFD_CLOEXEC, 0));
}

bool PeerTable::has_foreign_ended(Rank rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = foreign_.find(rank);
  if (found == foreign_.end()) return false;
  pollfd ended{found->second.get(), POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

std::string PeerTable::diagnose(Rank rank) const {
  const pid_t pid = local_pid(rank);
  if (pid == 0) return "";
  if (pid == kForeignPid)
    return has_foreign_ended(rank) ? "its process, in another PID namespace, has ended" : "";
  switch (const char code = process_state(pid)) {
    case 0:
      return fmt::format("process {} has ended", pid);
    case 'X':
    case 'Z':
      return fmt::format("process {} has ended (state {})", pid, code);
    case 'T':
      return fmt::format("process {} is stopped (state T)", pid);
    case 't':
      return fmt::format("process {} is held by a debugger (state t)", pid);
    case 'D':
      return fmt::format("process {} is waiting inside the kernel (state D)", pid);
    default:
      return fmt::format("process {} is running", pid);
  }
}

bool PeerTable::has_ended(Rank rank) const {
  const pid_t pid = local_pid(rank);
  if (pid == 0) return false;
  if (pid == kForeignPid) return has_foreign_ended(rank);
  const char state = process_state(pid);
  return state == 0 || state == 'X' || state == 'Z';
}

int PeerTable::add_listener(std::function<void()> listener) {
  const std::lock_guard lock(listeners_mutex_);
  listeners_.emplace_back(next_listener_, std::move(listener));
  return next_listener_++;
}

void PeerTable::remove_listener(int number) {
  const std::lock_guard lock(listeners_mutex_);
  std::erase_if(listeners_, [number](const auto& entry) { return entry.first == number; });
}

void PeerTable::notify() {
  const std::lock_guard lock(listeners_mutex_);
  for (const auto& [number, listener] : listeners_) listener();
}

}  // namespace dunlin
