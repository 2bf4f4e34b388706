#include "transports/shm/process_memory.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

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

Status check_process_memory(pid_t pid, std::uint64_t address) {
  std::byte probe{};
  iovec local{&probe, 1};
  iovec remote{reinterpret_cast<void*>(address), 1};
  if (process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1) return Status::ok();
  const int error = errno;
  if (error == EPERM) {
    return {Code::kUnavailable,
            fmt::format("this process may not access the memory of process {}, which Dunlin did "
                        "not allocate: allow it (/proc/sys/kernel/yama/ptrace_scope at most 1, in "
                        "containers the capability SYS_PTRACE), or allocate the memory by Dunlin",
                        pid)};
  }
  if (error == ENOSYS) {
    return {Code::kUnavailable,
            "this kernel has no process_vm_readv, by which memory that Dunlin did not allocate is "
            "accessed"};
  }
  return Status::from_errno(fmt::format("reading the memory of process {}", pid), error);
}

ProcessMemoryQueue::ProcessMemoryQueue(Owner& owner, BusyQueues& busy, pid_t pid, Rank peer)
    : owner_(owner),
      busy_(busy),
      pid_(pid),
      peer_(peer),
      pidfd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
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

Status ProcessMemoryQueue::check_process() const {
  pollfd ended{pidfd_.get(), POLLIN, 0};
  if (!pidfd_.is_open() || poll(&ended, 1, 0) == 0) return Status::ok();
  return {Code::kPeerDead, fmt::format("process {} has ended", pid_)};
}

Status ProcessMemoryQueue::transfer() {
  for (std::size_t next = 0; next < local_.size();) {
    const auto count = static_cast<unsigned long>(local_.size() - next);
    const auto call = direction_ == Direction::kPut ? process_vm_writev : process_vm_readv;
    ++system_calls_;
    const ssize_t moved = call(pid_, &local_[next], count, &remote_[next], count, 0);
    if (moved <= 0) {
      const int error = moved < 0 ? errno : EFAULT;
      if (error == ESRCH) return {Code::kPeerDead, fmt::format("process {} has ended", pid_)};
      if (error == EFAULT) {
        return {Code::kIoError,
                fmt::format("{} bytes of process {} at {} cannot be accessed: memory that is "
                            "registered was unmapped, here or there",
                            local_[next].iov_len, pid_, remote_[next].iov_base)};
      }
      return Status::from_errno(fmt::format("accessing the memory of process {}", pid_), error);
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
