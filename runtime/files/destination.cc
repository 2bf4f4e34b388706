#include "runtime/files/destination.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <filesystem>
#include <thread>

namespace dunlin::files {
namespace {

constexpr int kMostLinks = 40;  // as the kernel's limit

// The path by which others can reach an open folder.
std::string path_of(int folder) {
  return fmt::format("/proc/self/fd/{}", folder);
}

// The folders of /proc that list this process's descriptors.
bool lists_own_descriptors(int folder) {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink(path_of(folder), error).string();
  const std::string own = std::filesystem::canonical("/proc/self", error).string();
  return !error && path.starts_with(own + "/") && path.ends_with("/fd");
}

bool is_on_proc(int folder) {
  struct statfs info {};
  return ::fstatfs(folder, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

}  // namespace

Status Destination::error(int number) const {
  return Status::from_errno("open " + path_, number);
}

Result<Destination> Destination::find(const std::string& path) {
  Destination found(path);
  for (int links = 0; links <= kMostLinks; ++links) {
    DUNLIN_TRY(found.enter_folder());
    DUNLIN_ASSIGN(const bool was_link, found.look());
    if (!was_link) return found;
  }
  return found.error(ELOOP);
}

Status Destination::enter_folder() {
  if (name_.empty()) return error(ENOENT);
  const std::size_t slash = name_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : name_.substr(0, slash + 1);
  if (slash != std::string::npos) name_.erase(0, slash + 1);
  const int from = folder_.is_open() ? folder_.get() : AT_FDCWD;
  Fd entered(::openat(from, folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!entered.is_open()) return error(errno);
  folder_ = std::move(entered);
  return name_.empty() ? error(EISDIR) : Status::ok();
}

Result<bool> Destination::look() {
  if (is_on_proc(folder_.get())) {
    DUNLIN_TRY(look_in_proc());
    return false;
  }
  const Fd entry(::openat(folder_.get(), name_.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!entry.is_open()) {
    if (errno != ENOENT) return error(errno);
    kind_ = Kind::kNew;
    return false;
  }
  if (::fstat(entry.get(), &info_) != 0) return error(errno);
  if (S_ISDIR(info_.st_mode)) return error(EISDIR);
  DUNLIN_TRY(check_owner());
  if (S_ISLNK(info_.st_mode)) return follow(entry.get());
  kind_ = S_ISREG(info_.st_mode)    ? Kind::kRegular
          : S_ISFIFO(info_.st_mode) ? Kind::kFifo
          : S_ISSOCK(info_.st_mode) ? Kind::kSocket
                                    : Kind::kOther;
  return false;
}

Result<bool> Destination::follow(int link) {
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(link, "", target.data(), target.size());
  if (size < 0) return error(errno);
  target.resize(static_cast<std::size_t>(size));
  name_ = std::move(target);
  return true;
}

Status Destination::check_owner() const {
  struct stat folder {};
  if (::fstat(folder_.get(), &folder) != 0) return error(errno);
  constexpr mode_t kShared = S_ISVTX | S_IWOTH;
  if ((folder.st_mode & kShared) != kShared || info_.st_uid == geteuid() ||
      info_.st_uid == folder.st_uid) {
    return Status::ok();
  }
  return {Code::kPermissionDenied,
          fmt::format("open {}: '{}' belongs to another user, in a folder that everybody may write "
                      "to",
                      path_, name_)};
}

Status Destination::look_in_proc() {
  kind_ = Kind::kProc;
  if (!lists_own_descriptors(folder_.get())) return Status::ok();
  const char* const end = name_.data() + name_.size();
  const auto read = std::from_chars(name_.data(), end, descriptor_);
  if (read.ec != std::errc{} || read.ptr != end) return error(ENOENT);
  kind_ = Kind::kDescriptor;
  return Status::ok();
}

Result<Fd> Destination::open(int flags, Duration reader_timeout) const {
  if (kind_ == Kind::kSocket) return connect();
  if (kind_ == Kind::kDescriptor) {
    Fd copy(::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0));
    return copy.is_open() ? Result<Fd>(std::move(copy)) : error(errno);
  }
  flags |= O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  if (kind_ != Kind::kProc) flags |= O_NOFOLLOW;
  const auto deadline = std::chrono::steady_clock::now() + reader_timeout;
  for (;;) {
    Fd fd(::openat(folder_.get(), name_.c_str(), flags, 0666));
    if (fd.is_open()) {
      const int status = ::fcntl(fd.get(), F_GETFL);
      if (status < 0 || ::fcntl(fd.get(), F_SETFL, status & ~O_NONBLOCK) != 0) return error(errno);
      return fd;
    }
    if (errno == EINTR) continue;
    if (errno != ENXIO || kind_ != Kind::kFifo) return error(errno);
    if (std::chrono::steady_clock::now() >= deadline) {
      return Status(Code::kDeadlineExceeded,
                    fmt::format("open {}: a FIFO that no program reads", path_));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Result<Fd> Destination::connect() const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = path_of(folder_.get()) + "/" + name_;
  if (path.size() >= sizeof address.sun_path) return error(ENAMETOOLONG);
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return error(errno);
  // A stopped program accepts nothing, and connect() would wait for it.
  timeval limit{std::chrono::duration_cast<std::chrono::seconds>(kReaderTimeout).count(), 0};
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EAGAIN) return error(errno);
    return Status(Code::kDeadlineExceeded,
                  fmt::format("connect to {}: its program accepts no connection", path_));
  }
  limit = {};
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return fd;
}

}  // namespace dunlin::files
