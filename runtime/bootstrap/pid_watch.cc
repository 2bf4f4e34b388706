#include "runtime/bootstrap/pid_watch.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/log.h"

namespace dunlin::bootstrap {

PidWatch::PidWatch(PeerTable& peers, Rank self, Duration grace, std::function<void(Rank)> tell)
    : peers_(peers),
      self_(self),
      grace_(grace),
      tell_(std::move(tell)),
      known_(static_cast<std::size_t>(peers.size()), 0) {}

void PidWatch::refresh() {
  if (const auto version = peers_.pids_version(); version != seen_) {
    seen_ = version;
    take_new();
  }
  std::erase_if(watches_, [this](const Watch& each) { return !peers_.is_present(each.rank); });
}

void PidWatch::take_new() {
  for (int i = 0; i < peers_.size(); ++i) {
    const Rank rank(i);
    const pid_t pid = peers_.local_pid(rank);
    if (pid == known_[rank.index()] || rank == self_) continue;
    known_[rank.index()] = pid;
    std::erase_if(watches_, [rank](const Watch& each) { return each.rank == rank; });
    if (pid != 0) watch(rank, pid);
  }
}

void PidWatch::watch(Rank rank, pid_t pid) {
  Fd fd = pid == PeerTable::kForeignPid ? peers_.foreign_process(rank)
                                        : Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  // A process that does not exist has ended. After any other failure, only the coordinator detects
  // the peer's death, by the end of its connection.
  const bool has_ended = !fd.is_open() && errno == ESRCH;
  if (!fd.is_open() && !has_ended) {
    DUNLIN_DEBUG("bootstrap: {}", Status::from_errno("pidfd_open", errno).message());
    return;
  }
  watches_.push_back({rank, pid, std::move(fd), has_ended, SteadyClock().now() + grace_});
}

void PidWatch::append_to(std::vector<pollfd>& entries) const {
  for (const Watch& each : watches_) {
    entries.push_back({each.has_ended ? -1 : each.fd.get(), POLLIN, 0});
  }
}

void PidWatch::note(const pollfd* entries, TimePoint now) {
  for (Watch& each : watches_) {
    if ((entries++)->revents == 0) continue;
    each.has_ended = true;
    each.dead_at = now + grace_;
  }
}

void PidWatch::settle(TimePoint now) {
  for (const Watch& each : watches_) {
    if (!each.has_ended || each.dead_at > now || !peers_.is_present(each.rank)) continue;
    const std::string process = each.pid == PeerTable::kForeignPid
                                    ? "its process, in another PID namespace,"
                                    : fmt::format("process {}", each.pid);
    peers_.mark(each.rank, PeerState::kDead,
                fmt::format("{} ended before it left the job", process));
    tell_(each.rank);
  }
  std::erase_if(watches_, [this](const Watch& each) { return !peers_.is_present(each.rank); });
}

TimePoint PidWatch::next(TimePoint otherwise) const {
  TimePoint next = otherwise;
  for (const Watch& each : watches_) {
    if (each.has_ended) next = std::min(next, each.dead_at);
  }
  return next;
}

}  // namespace dunlin::bootstrap
