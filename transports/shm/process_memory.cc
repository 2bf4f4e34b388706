#include "transports/shm/process_memory.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <mutex>
#include <utility>

#include "transports/lane.h"
#include "transports/shm/constants.h"

namespace dunlin::transport::shm {
namespace {

// The entries of one system call; the kernel takes no more (IOV_MAX).
constexpr std::size_t kMaxEntries = 1024;

std::byte* end_of(const iovec& entry) {
  return static_cast<std::byte*>(entry.iov_base) + entry.iov_len;
}

}  // namespace

void allow_process_memory_access() {
  static std::once_flag once;
  std::call_once(once, [] {
    int scope = 0;
    std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
    // Yama knows one exception per process, and a process has many peers.
    if (scope == 1) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  });
}

ProcessMemoryQueue::ProcessMemoryQueue(Owner& owner, BusyQueues& busy, PeerProcess& process,
                                       Rank peer)
    : owner_(owner), busy_(busy), process_(process), peer_(peer) {
  local_.reserve(kMaxEntries);
  remote_.reserve(kMaxEntries);
  operations_.reserve(kMaxEntries);
}

Status ProcessMemoryQueue::add(Direction direction, std::byte* local, std::uint64_t remote,
                               std::size_t size, Completion* completion) {
  if (direction != direction_) {
    run();
    direction_ = direction;
  }
  DUNLIN_TRY(Status(failure_));
  if (operations_.empty()) {
    busy_.add(*this);
    owner_.hold_for_process_memory(true);
  }
  auto* const place = reinterpret_cast<std::byte*>(remote);
  const bool adjoins =
      !local_.empty() && end_of(local_.back()) == local && end_of(remote_.back()) == place;
  if (adjoins) {
    local_.back().iov_len += size;
    remote_.back().iov_len += size;
  } else {
    local_.push_back({local, size});
    remote_.push_back({place, size});
  }
  operations_.push_back({completion, local_.size() - 1});
  bytes_ += size;
  if (local_.size() == kMaxEntries || operations_.size() == kMaxEntries ||
      bytes_ >= kProcessMemoryBatch)
    run();
  return Status::ok();
}

std::size_t ProcessMemoryQueue::run() {
  if (operations_.empty()) return 0;
  Status outcome = check_process();
  if (outcome.is_ok()) outcome = transfer();
  if (!outcome.is_ok()) outcome = std::move(outcome).with_peer(peer_);
  if (direction_ == Direction::kPut) failure_ = outcome;
  const std::size_t count = operations_.size();
  // The operations that are left have failed.
  for (; completed_ < count; ++completed_)
    fire(operations_[completed_].completion, Status(outcome));
  local_.clear();
  remote_.clear();
  operations_.clear();
  completed_ = bytes_ = 0;
  busy_.remove(*this);
  owner_.hold_for_process_memory(!failure_.is_ok());
  return count;
}

Status ProcessMemoryQueue::check_process() {
  if (!process_.has_ended()) return Status::ok();
  return {Code::kPeerDead, fmt::format("{} has ended", process_.name())};
}

Status ProcessMemoryQueue::transfer() {
  for (std::size_t next = 0; next < local_.size();) {
    const std::size_t count = local_.size() - next;
    ++system_calls_;
    const ssize_t moved = direction_ == Direction::kPut
                              ? process_.write_memory(&local_[next], &remote_[next], count)
                              : process_.read_memory(&local_[next], &remote_[next], count);
    if (moved <= 0) {
      const int error = moved < 0 ? errno : EFAULT;
      if (error == ESRCH) return {Code::kPeerDead, fmt::format("{} has ended", process_.name())};
      if (error == EFAULT) {
        return {Code::kIoError,
                fmt::format("{} bytes of {} at {} cannot be accessed: memory that is "
                            "registered was unmapped, here or there",
                            local_[next].iov_len, process_.name(), remote_[next].iov_base)};
      }
      return Status::from_errno(fmt::format("accessing the memory of {}", process_.name()), error);
    }
    auto rest = static_cast<std::size_t>(moved);
    for (; next < local_.size() && rest >= local_[next].iov_len; ++next)
      rest -= local_[next].iov_len;
    complete(next);
    if (rest == 0) continue;
    for (iovec* const entry : {&local_[next], &remote_[next]}) {
      entry->iov_base = static_cast<std::byte*>(entry->iov_base) + rest;
      entry->iov_len -= rest;
    }
  }
  return Status::ok();
}

void ProcessMemoryQueue::complete(std::size_t done) {
  while (completed_ < operations_.size() && operations_[completed_].last < done)
    fire(operations_[completed_++].completion);
}

}  // namespace dunlin::transport::shm
