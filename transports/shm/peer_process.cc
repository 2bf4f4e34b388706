#include "transports/shm/peer_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dunlin::transport::shm {
namespace {

// The kernel's errors for /proc/PID/mem, as process_vm_readv() has them.
ssize_t as_memory_result(ssize_t moved) {
  if (moved > 0) return moved;
  if (moved == 0) {
    errno = ESRCH;  // no memory is left of a process that has ended
  } else if (errno == EIO) {
    errno = EFAULT;
  }
  return -1;
}

}  // namespace

Result<Fd> open_descriptor_of(int pid, int fd, int flags) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  Fd opened(::open(path.c_str(), flags | O_CLOEXEC));
  if (!opened.is_open()) return Status::from_errno("open " + path, errno);
  return opened;
}

PeerProcess::PeerProcess(std::unique_ptr<DescriptorClient> client, Fd pidfd)
    : pid_(PeerTable::kForeignPid), client_(std::move(client)), pidfd_(std::move(pidfd)) {}

Result<std::unique_ptr<PeerProcess>> PeerProcess::meet(std::unique_ptr<DescriptorClient> client) {
  DUNLIN_ASSIGN(Fd pidfd, client->fetch(kProcessOffer));
  return std::unique_ptr<PeerProcess>(new PeerProcess(std::move(client), std::move(pidfd)));
}

std::string PeerProcess::name() const {
  return is_foreign() ? "the peer's process, in another PID namespace,"
                      : fmt::format("process {}", pid_);
}

Result<Fd> PeerProcess::watch() const {
  Fd duplicate(fcntl(pidfd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!duplicate.is_open()) return Status::from_errno("duplicating a pidfd", errno);
  return duplicate;
}

bool PeerProcess::has_ended() {
  if (!pidfd_.is_open()) pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  pollfd ended{pidfd_.get(), POLLIN, 0};
  return pidfd_.is_open() && poll(&ended, 1, 0) == 1;  // a signal ends poll() with an error
}

Result<Fd> PeerProcess::open(OfferKey offer, int number, int flags) {
  return is_foreign() ? client_->fetch(offer) : open_descriptor_of(pid_, number, flags);
}

Status PeerProcess::check_memory(std::uint64_t address) {
  if (is_foreign() && !memory_.is_open()) {
    auto memory = client_->fetch(kMemoryOffer);
    if (!memory && memory.status().code() == Code::kNotFound) {
      return {Code::kUnavailable,
              "the peer could not open its /proc/self/mem, by which memory that Dunlin did not "
              "allocate is accessed from another PID namespace: allocate the memory by Dunlin"};
    }
    DUNLIN_TRY(Status(memory.status()));
    memory_ = std::move(memory).value();
  }
  std::byte probe{};
  const iovec local{&probe, 1};
  const iovec remote{reinterpret_cast<void*>(address), 1};
  if (read_memory(&local, &remote, 1) == 1) return Status::ok();
  const int error = errno;
  if (error == EPERM) {
    return {Code::kUnavailable,
            fmt::format("this process may not access the memory of {}, which Dunlin did not "
                        "allocate: allow it (/proc/sys/kernel/yama/ptrace_scope at most 1, in "
                        "containers the capability SYS_PTRACE), or allocate the memory by Dunlin",
                        name())};
  }
  if (error == ENOSYS) {
    return {Code::kUnavailable,
            "this kernel has no process_vm_readv, by which memory that Dunlin did not allocate is "
            "accessed"};
  }
  return Status::from_errno(fmt::format("reading the memory of {}", name()), error);
}

ssize_t PeerProcess::read_memory(const iovec* local, const iovec* remote, std::size_t count) const {
  if (!is_foreign()) return process_vm_readv(pid_, local, count, remote, count, 0);
  const auto place = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(remote->iov_base));
  return as_memory_result(pread(memory_.get(), local->iov_base, local->iov_len, place));
}

ssize_t PeerProcess::write_memory(const iovec* local, const iovec* remote,
                                  std::size_t count) const {
  if (!is_foreign()) return process_vm_writev(pid_, local, count, remote, count, 0);
  const auto place = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(remote->iov_base));
  return as_memory_result(pwrite(memory_.get(), local->iov_base, local->iov_len, place));
}

}  // namespace dunlin::transport::shm
