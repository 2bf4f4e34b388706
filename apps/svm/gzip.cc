#include "apps/svm/gzip.h"

#if DUNLIN_HAVE_ZLIB
#include <zlib.h>
#endif

#include <algorithm>
#include <limits>

namespace dunlin::svm {

bool is_gzip(std::string_view bytes) {
  return bytes.starts_with("\x1F\x8B");
}

#if DUNLIN_HAVE_ZLIB

namespace {

// zlib counts in unsigned ints.
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

// Unpacks the member that the stream stands at, behind what `unpacked` holds of it so far.
int unpack_member(z_stream& stream, std::string_view packed, std::size_t& taken,
                  std::vector<char>& unpacked, std::size_t& size) {
  int code = Z_OK;
  while (code == Z_OK) {
    if (size == unpacked.size()) unpacked.resize(unpacked.size() * 2);
    const std::size_t input = std::min(packed.size() - taken, kMostAtOnce);
    const std::size_t room = std::min(unpacked.size() - size, kMostAtOnce);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + taken));
    stream.avail_in = static_cast<uInt>(input);
    stream.next_out = reinterpret_cast<Bytef*>(unpacked.data() + size);
    stream.avail_out = static_cast<uInt>(room);
    code = inflate(&stream, Z_NO_FLUSH);
    taken += input - stream.avail_in;
    size += room - stream.avail_out;
  }
  return code;
}

}  // namespace

Result<std::vector<char>> unpack_gzip(std::string_view packed) {
  constexpr int kGzipOnly = 16;  // added to the size of the window
  z_stream stream{};
  if (const int code = inflateInit2(&stream, MAX_WBITS + kGzipOnly); code != Z_OK) {
    return failure(code);
  }
  // Images pack to about a half; the buffer doubles where that was too little.
  std::vector<char> unpacked(packed.size() * 3 + 4096);
  std::size_t taken = 0;
  std::size_t size = 0;
  int code = unpack_member(stream, packed, taken, unpacked, size);
  while (code == Z_STREAM_END && taken < packed.size()) {
    code = inflateReset(&stream);
    if (code == Z_OK) code = unpack_member(stream, packed, taken, unpacked, size);
  }
  inflateEnd(&stream);
  if (code != Z_STREAM_END) return failure(code);
  unpacked.resize(size);
  return unpacked;
}

#else

Result<std::vector<char>> unpack_gzip(std::string_view) {
  return Status(Code::kUnavailable,
                "is packed with gzip and this build has no zlib: unpack it with `gzip -dc`");
}

#endif

}  // namespace dunlin::svm
