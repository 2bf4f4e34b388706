// The bytes of an input file. A plain file is mapped read-only; a file that is packed with xz or
// gzip is unpacked into memory. The first bytes decide which it is, not the name. Any thread may
// read it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/status.h"

namespace dunlin::svm {

class InputFile {
 public:
  // Fails for everything but a regular file, for a stream that is damaged, cut short or unpacks to
  // too much (unpack.h), and for other kinds of compression. Also fails for xz and gzip when the
  // build has no liblzma or no zlib.
  static Result<InputFile> open(const std::string& path);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  // Valid until the file object is moved from or destroyed.
  std::string_view bytes() const {
    return mapping_ != nullptr ? std::string_view(mapping_, mapped_size_)
                               : std::string_view(unpacked_.data(), unpacked_.size());
  }

 private:
  InputFile() = default;
  Status map(const std::string& path);

  const char* mapping_ = nullptr;
  std::size_t mapped_size_ = 0;
  std::vector<char> unpacked_;
};

}  // namespace dunlin::svm
