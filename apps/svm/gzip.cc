#include "apps/svm/gzip.h"

#if DUNLIN_HAVE_ZLIB
#include <zlib.h>
#endif

#include <algorithm>
#include <limits>
#include <span>

#include "apps/svm/unpack.h"

namespace dunlin::svm {

bool is_gzip(std::string_view bytes) {
  return bytes.starts_with("\x1F\x8B");
}

#if DUNLIN_HAVE_ZLIB

namespace {

// zlib counts in values of type unsigned int.
constexpr std::size_t kMostAtOnce = std::numeric_limits<uInt>::max();

Status failure(int code) {
  switch (code) {
    case Z_MEM_ERROR:
      return {Code::kResourceExhausted, "no memory left to unpack it"};
    case Z_BUF_ERROR:
      return {Code::kCorrupted, "its gzip stream is cut short"};
    default:
      return {Code::kCorrupted, "its gzip stream is damaged"};
  }
}

// Images pack to about half their size.
constexpr std::size_t kExpectedTimes = 3;

class Inflater {
 public:
  Inflater() = default;
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  int open() {
    constexpr int kGzipOnly = 16;  // added to the size of the window
    return inflateInit2(&stream_, MAX_WBITS + kGzipOnly);
  }
  Result<UnpackStep> step(std::string_view packed, std::span<char> room) {
    const std::size_t input = std::min(packed.size(), kMostAtOnce);
    const std::size_t output = std::min(room.size(), kMostAtOnce);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream_.avail_in = static_cast<uInt>(input);
    stream_.next_out = reinterpret_cast<Bytef*>(room.data());
    stream_.avail_out = static_cast<uInt>(output);
    int code = inflate(&stream_, Z_NO_FLUSH);
    UnpackStep done;
    done.taken = input - stream_.avail_in;
    done.made = output - stream_.avail_out;
    done.is_over = code == Z_STREAM_END && done.taken == packed.size();
    // Another member follows.
    if (code == Z_STREAM_END && !done.is_over) code = inflateReset(&stream_);
    if (code != Z_OK && !done.is_over) return failure(code);
    return done;
  }

 private:
  z_stream stream_{};
};

}  // namespace

Result<std::vector<char>> unpack_gzip(std::string_view packed) {
  Inflater inflater;
  if (const int code = inflater.open(); code != Z_OK) return failure(code);
  return unpack(packed, kExpectedTimes, [&](std::string_view input, std::span<char> room) {
    return inflater.step(input, room);
  });
}

#else

Result<std::vector<char>> unpack_gzip(std::string_view) {
  return Status(Code::kUnavailable,
                "is packed with gzip and this build has no zlib: unpack it with `gzip -dc`");
}

#endif

}  // namespace dunlin::svm
