// OutputStream writes a file piece by piece while a program runs, so that others can read along.
// Owner thread only.
#pragma once

#include <string>
#include <string_view>

#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin {

class OutputStream {
 public:
  enum class Start {
    kEmpty,   // what a regular file holds is removed
    kAppend,  // writes after what it holds
  };

  // A stream that drops what is written to it.
  OutputStream() = default;
  // Creates the file where there is none. Links, FIFOs, sockets and /dev/stdout are treated as
  // replace_file() (output_file.h) treats them.
  static Result<OutputStream> open(const std::string& path, Start start);
  static Result<OutputStream> standard_output();

  bool is_open() const { return fd_.is_open(); }
  // When it returns, the text has been handed to the kernel.
  Status write(std::string_view text) const;
  // Closes the file, and returns an error that the file system reports only now. Later writes are
  // dropped. The destructor closes the file as well, and drops such an error.
  Status close();

 private:
  OutputStream(std::string name, Fd fd) : name_(std::move(name)), fd_(std::move(fd)) {}

  std::string name_;
  Fd fd_;
};

}  // namespace dunlin
