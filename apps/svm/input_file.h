// The bytes of an input file: mapped read-only, or unpacked into memory where the file is packed
// with xz or gzip (told by its first bytes, not by its name). Made by one thread, read by any.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/status.h"

namespace dunlin::svm {

class InputFile {
 public:
  // Fails for anything but a regular file, for a broken or truncated stream or one that unpacks to
  // too much (unpack.h), for other kinds of compression, and for xz and gzip where the build has no
  // liblzma or no zlib.
  static Result<InputFile> open(const std::string& path);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  // Valid until the file is moved from or destroyed.
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
