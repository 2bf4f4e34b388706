// Files that are written as a whole: models, checkpoints, traces, pictures. Stateless. Any thread,
// but one at a time for each path.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "runtime/status.h"

namespace dunlin {

struct ReplaceOptions {
  // When replace_file() returns, the content survives a power failure.
  bool is_durable = false;
  // Whether the new content may have no name while it is written, where the file system can do
  // that. Then SIGKILL can leave a file behind only in the moment before the last rename.
  bool may_be_nameless = true;
  // A file that did not exist can be read and written by its owner only.
  bool is_private = false;
};

// Makes the file hold exactly `content`. On failure, or when the process is killed meanwhile, it
// keeps its former content, and a failure leaves nothing beside it. (SIGKILL may leave
// "<name>.<random>.partial". If making the folder durable fails, the new content is there already.)
//
// - An existing file keeps its permissions, and its owner where this process may give files away.
//   A file that this process may not write is an error, as is a folder in which it may not create
//   files. Other hard links to the file keep the former content.
// - A symbolic link stays, and the file at its end is replaced. In a folder such as /tmp, entries
//   of other users are refused.
// - A device, a FIFO or a Unix socket is written to and never replaced. The call fails with
//   kDeadlineExceeded if no process opens the FIFO for reading within 10 s.
// - /dev/stdout, /dev/fd/N and the like are written to where they stand, after what was written to
//   them before.
Status replace_file(const std::string& path, std::span<const std::byte> content,
                    const ReplaceOptions& options = {});
Status replace_file(const std::string& path, std::string_view content,
                    const ReplaceOptions& options = {});

}  // namespace dunlin
