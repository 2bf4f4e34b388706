#include "runtime/files/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "runtime/bytes.h"
#include "runtime/files/destination.h"

namespace dunlin {
namespace {

using files::Destination;

// The new content, beside the file whose place it takes in the end.
class Replacement {
 public:
  explicit Replacement(const Destination& to) : to_(to) {}
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement() {
    if (!name_.empty()) ::unlinkat(to_.folder(), name_.c_str(), 0);
  }

  Status create(const ReplaceOptions& options);
  Status write(std::span<const std::byte> content, bool is_durable);
  Status take_place(bool is_durable);

 private:
  static constexpr int kNameAttempts = 16;
  // Leaves room for the rest of the name (NAME_MAX is 255 bytes).
  static constexpr std::size_t kLongestStem = 200;

  // Calls make(name) with new random names until one doesn't exist yet.
  template <typename Make>
  Status with_new_name(Make make);
  Status take_permissions();

  const Destination& to_;
  std::string name_;  // empty: it has none
  Fd fd_;
};

template <typename Make>
Status Replacement::with_new_name(Make make) {
  int failure = EEXIST;
  for (int attempt = 0; attempt < kNameAttempts && failure == EEXIST; ++attempt) {
    std::uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random) {
      return Status::from_errno("getrandom", errno);
    }
    std::string name =
        fmt::format("{}.{:016x}.partial", to_.name().substr(0, kLongestStem), random);
    if (make(name)) {
      name_ = std::move(name);
      return Status::ok();
    }
    failure = errno;
  }
  return Status::from_errno("create a file beside it", failure);
}

Status Replacement::create(const ReplaceOptions& options) {
  // The owner alone may open it until it has the permissions of the file that it replaces.
  const mode_t mode = to_.exists() || options.is_private ? 0600 : 0666;
  if (options.may_be_nameless) {
    fd_ = Fd(::openat(to_.folder(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode));
  }
  if (!fd_.is_open()) {
    // Some file systems know no nameless files, and say so in several ways.
    DUNLIN_TRY(with_new_name([&](const std::string& name) {
      constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
      fd_ = Fd(::openat(to_.folder(), name.c_str(), kFlags, mode));
      return fd_.is_open();
    }));
  }
  return to_.exists() ? take_permissions() : Status::ok();
}

Status Replacement::take_permissions() {
  if (::faccessat(to_.folder(), to_.name().c_str(), W_OK, AT_EACCESS) != 0) {
    return Status::from_errno("write", errno);
  }
  const struct stat& former = to_.info();
  // Only root may give files away; the file of another user becomes this user's.
  const bool has_owner = ::fchown(fd_.get(), former.st_uid, former.st_gid) == 0;
  const bool has_group =
      has_owner || ::fchown(fd_.get(), static_cast<uid_t>(-1), former.st_gid) == 0;
  // What a group may do, another group may not inherit.
  const mode_t mode = former.st_mode & (has_group ? 0777 : 0707);
  if (::fchmod(fd_.get(), mode) != 0) return Status::from_errno("fchmod", errno);
  return Status::ok();
}

Status Replacement::write(std::span<const std::byte> content, bool is_durable) {
  DUNLIN_TRY(files::write_all(fd_.get(), content));
  if (is_durable && ::fsync(fd_.get()) != 0) return Status::from_errno("fsync", errno);
  if (name_.empty()) {
    const std::string nameless = fmt::format("/proc/self/fd/{}", fd_.get());
    DUNLIN_TRY(with_new_name([&](const std::string& name) {
      return ::linkat(AT_FDCWD, nameless.c_str(), to_.folder(), name.c_str(), AT_SYMLINK_FOLLOW) ==
             0;
    }));
  }
  return files::close_checked(std::move(fd_));
}

Status Replacement::take_place(bool is_durable) {
  if (::renameat(to_.folder(), name_.c_str(), to_.folder(), to_.name().c_str()) != 0) {
    return Status::from_errno("rename", errno);
  }
  name_.clear();
  if (!is_durable) return Status::ok();
  // The entry has to be durable as well. The destination's descriptor is one for paths only.
  const Fd folder(::openat(to_.folder(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return Status::from_errno("open its folder", errno);
  return ::fsync(folder.get()) == 0 ? Status::ok() : Status::from_errno("fsync its folder", errno);
}

Status replace(const Destination& to, std::span<const std::byte> content,
               const ReplaceOptions& options) {
  Replacement replacement(to);
  DUNLIN_TRY(replacement.create(options));
  DUNLIN_TRY(replacement.write(content, options.is_durable));
  return replacement.take_place(options.is_durable);
}

Status write_in_place(Fd fd, std::span<const std::byte> content) {
  DUNLIN_TRY(files::write_all(fd.get(), content));
  return files::close_checked(std::move(fd));
}

}  // namespace

Status replace_file(const std::string& path, std::span<const std::byte> content,
                    const ReplaceOptions& options) {
  DUNLIN_ASSIGN(const Destination to, Destination::find(path));
  if (to.is_replaceable()) return replace(to, content, options).with_context(path);
  DUNLIN_ASSIGN(Fd fd, to.open(0));
  return write_in_place(std::move(fd), content).with_context(path);
}

Status replace_file(const std::string& path, std::string_view content,
                    const ReplaceOptions& options) {
  return replace_file(path, as_bytes(content), options);
}

}  // namespace dunlin
