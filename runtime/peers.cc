#include "runtime/peers.h"

#include <fmt/format.h>

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

PeerTable::PeerTable(int size) : peers_(static_cast<std::size_t>(size)) {}

std::string PeerTable::describe(Rank rank) const {
  const std::lock_guard lock(mutex_);
  const std::string& reason = peers_[rank.index()].reason;
  const char* const word = to_string(state(rank));
  return reason.empty() ? word : fmt::format("{}: {}", word, reason);
}

Status PeerTable::report_gone(Rank rank) const {
  return Status(Code::kPeerDead, fmt::format("rank {} is {}", rank.value(), describe(rank)))
      .with_peer(rank);
}

void PeerTable::mark(Rank rank, PeerState state, std::string reason) {
  {
    const std::lock_guard lock(mutex_);
    Peer& peer = peers_[rank.index()];
    const PeerState before = peer.state.load(std::memory_order_relaxed);
    if (before == state || is_final(before)) return;
    peer.reason = std::move(reason);
    peer.state.store(state, std::memory_order_relaxed);
    // Pairs with the acquire load of version(): a thread that sees the new version sees the state.
    version_.fetch_add(1, std::memory_order_release);
  }
  notify(rank);
}

void PeerTable::set_local_pid(Rank rank, pid_t pid) {
  peers_[rank.index()].pid.store(pid, std::memory_order_relaxed);
  notify(rank);
}

pid_t PeerTable::local_pid(Rank rank) const {
  return peers_[rank.index()].pid.load(std::memory_order_relaxed);
}

std::string PeerTable::diagnose(Rank rank) const {
  const pid_t pid = local_pid(rank);
  if (pid == 0) return "";
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
  const char state = process_state(pid);
  return state == 0 || state == 'X' || state == 'Z';
}

int PeerTable::add_listener(std::function<void(Rank)> listener) {
  const std::lock_guard lock(listeners_mutex_);
  listeners_.emplace_back(next_listener_, std::move(listener));
  return next_listener_++;
}

void PeerTable::remove_listener(int number) {
  const std::lock_guard lock(listeners_mutex_);
  std::erase_if(listeners_, [number](const auto& entry) { return entry.first == number; });
}

void PeerTable::notify(Rank rank) {
  const std::lock_guard lock(listeners_mutex_);
  for (const auto& [number, listener] : listeners_) listener(rank);
}

}  // namespace dunlin
