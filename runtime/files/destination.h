// Where an output path leads, and how to write there without a temporary file. output_file.h and
// output_stream.h use it.
#pragma once

#include <sys/stat.h>

#include <span>
#include <string>

#include "runtime/clock.h"
#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin::files {

// How long an output waits for the first reader of a FIFO.
inline constexpr Duration kReaderTimeout = std::chrono::seconds(10);

// The entry of a folder that a path leads to. It is held by the folder's descriptor, so that nobody
// can exchange the folder afterwards.
class Destination {
 public:
  // Follows symbolic links to their end, which need not exist. In a folder that anybody may write
  // to and that protects its entries (such as /tmp), entries of other users are refused with
  // kPermissionDenied: they may be traps.
  static Result<Destination> find(const std::string& path);

  // Whether it is a regular file, or nothing yet.
  bool is_replaceable() const { return kind_ == Kind::kNew || kind_ == Kind::kRegular; }
  bool exists() const { return kind_ != Kind::kNew; }
  int folder() const { return folder_.get(); }
  const std::string& name() const { return name_; }
  // Valid only if exists().
  const struct stat& info() const { return info_; }

  // Opens it for writing, with these further `flags` of open(2). It waits for nothing but the first
  // reader of a FIFO. Where the path names an open descriptor of this process (/dev/stdout), the
  // result is a copy of that descriptor, which shares its place in the file.
  Result<Fd> open(int flags, Duration reader_timeout = kReaderTimeout) const;

 private:
  enum class Kind {
    kNew,
    kRegular,
    kDescriptor,  // of this process
    kProc,        // another entry of /proc, whose links don't lead where their texts say
    kFifo,
    kSocket,
    kOther,  // a device, say
  };

  explicit Destination(const std::string& path) : path_(path), name_(path) {}
  // Opens the folder of name_, which is relative to the folder so far, and leaves the last part.
  Status enter_folder();
  // Looks at the entry. Returns true if it was a symbolic link: then name_ is the link's text.
  Result<bool> look();
  Result<bool> follow(int link);
  Status check_owner() const;
  Status look_in_proc();
  Result<Fd> connect() const;
  Status error(int number) const;

  std::string path_;  // as the user wrote it
  Fd folder_;
  std::string name_;
  Kind kind_ = Kind::kNew;
  int descriptor_ = -1;
  struct stat info_ {};
};

// Writes all bytes, however few the kernel takes at a time. If the reader has gone, returns an
// error and raises no SIGPIPE. If the descriptor is non-blocking, as one that is shared with other
// processes may be, waits until it takes more.
Status write_all(int fd, std::span<const std::byte> bytes);

// Closes the descriptor, and returns an error that the file system reports only then, such as a
// full disk.
Status close_checked(Fd fd);

}  // namespace dunlin::files
