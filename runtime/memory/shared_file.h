// The memfds that memory regions are made of: SharedFile is one, a part of which is a region's, and
// SharedFilePool hands out parts of as few as possible. A process has few descriptors.
//
// A part is never used twice. If a peer writes late to a region that its owner has freed, it writes
// to no other region. When a region ends, its pages go back to the kernel, though others may still
// map them; a late access makes new pages, which read as zeros. Huge pages go back with their last
// mapping.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin {

class SharedFile {
 public:
  // Makes a memfd of `size` bytes, none of which has a page yet. `flags` are those of memfd_create.
  static Result<std::shared_ptr<SharedFile>> create(const char* name, std::size_t size,
                                                    unsigned flags);
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  int fd() const { return fd_.get(); }
  std::size_t size() const { return size_; }
  // Gives the pages back, so that they read as zeros. Returns false if it cannot, as for huge pages
  // and in a process that was forked from the one that made the file: the pages belong to that one.
  bool release(std::size_t offset, std::size_t size) const;
  bool is_owner() const;

 private:
  SharedFile(Fd fd, std::size_t size, bool is_huge);
  Fd fd_;
  std::size_t size_;
  bool is_huge_;
  pid_t owner_;
};

// A part of a file.
struct FileRange {
  std::shared_ptr<SharedFile> file;  // shared by the regions of one file, and by the pool
  std::size_t offset = 0;
  std::size_t size = 0;
};

// Owner thread only.
class SharedFilePool {
 public:
  // Parts of files of this size are handed out, and larger ones get files of their own. While a
  // peer maps a region of a process that has died, the kernel keeps the whole file.
  static constexpr std::size_t kFileBytes = std::size_t{256} << 20;

  // Returns an unused part of `size` bytes, a multiple of the size of a page.
  Result<FileRange> take(const char* name, std::size_t size);

 private:
  std::shared_ptr<SharedFile> current_;
  std::size_t used_ = 0;  // bytes of current_ that were handed out
  pid_t owner_ = 0;       // the process that made current_
};

}  // namespace dunlin
