#include "runtime/memory/shared_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dunlin {
namespace {

// The limit on the size of files holds for a memfd, too; growing one beyond it would be a signal.
bool may_be_as_large(std::size_t size) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && size <= limit.rlim_cur;
}

}  // namespace

SharedFile::SharedFile(Fd fd, std::size_t size, bool is_huge)
    : fd_(std::move(fd)), size_(size), is_huge_(is_huge), owner_(getpid()) {}

// No process can resize the file: if a peer shrank it, SIGBUS would kill every process that reads
// it.
Result<std::shared_ptr<SharedFile>> SharedFile::create(const char* name, std::size_t size,
                                                       unsigned flags) {
  if (!may_be_as_large(size)) {
    return Status(Code::kResourceExhausted,
                  fmt::format("a memfd of {} bytes exceeds the limit on files (ulimit -f)", size));
  }
  Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!fd.is_open()) return Status::from_errno("memfd_create", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Status::from_errno(fmt::format("making a memfd of {} bytes", size), errno);
  }
  return std::shared_ptr<SharedFile>(
      new SharedFile(std::move(fd), size, (flags & MFD_HUGETLB) != 0));
}

bool SharedFile::is_owner() const {
  return getpid() == owner_;
}

bool SharedFile::release(std::size_t offset, std::size_t size) const {
  // A peer that still has a huge page mapped, and accesses it late, would die of SIGBUS if there
  // were none left.
  if (!is_owner() || is_huge_) return false;
  return fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(offset), static_cast<off_t>(size)) == 0;
}

Result<FileRange> SharedFilePool::take(const char* name, std::size_t size) {
  if (size > kFileBytes || !may_be_as_large(kFileBytes)) {
    DUNLIN_ASSIGN(auto own, SharedFile::create(name, size, 0));
    return FileRange{std::move(own), 0, size};
  }
  // A process that was forked must not hand out what its parent hands out as well.
  if (current_ == nullptr || size > current_->size() - used_ || owner_ != getpid()) {
    DUNLIN_ASSIGN(current_, SharedFile::create(name, kFileBytes, 0));
    used_ = 0;
    owner_ = getpid();
  }
  return FileRange{current_, std::exchange(used_, used_ + size), size};
}

}  // namespace dunlin
