#include "apps/svm/xz.h"

#if DUNLIN_HAVE_LZMA
#include <lzma.h>
#endif

#include <cstdint>
#include <span>

#include "apps/svm/unpack.h"

namespace dunlin::svm {

bool is_xz(std::string_view bytes) {
  return bytes.starts_with(
      std::string_view("\xFD"
                       "7zXZ\0",
                       6));
}

#if DUNLIN_HAVE_LZMA

namespace {

Status failure(lzma_ret code) {
  switch (code) {
    case LZMA_MEM_ERROR:
      return {Code::kResourceExhausted, "no memory left to unpack it"};
    case LZMA_OPTIONS_ERROR:
      return {Code::kUnavailable, "uses xz options unknown to this liblzma"};
    case LZMA_BUF_ERROR:
      return {Code::kCorrupted, "its xz stream is cut short"};
    default:
      return {Code::kCorrupted, "its xz stream is damaged"};
  }
}

// Text packs to about a quarter of its size.
constexpr std::size_t kExpectedTimes = 4;

class Decoder {
 public:
  Decoder() = default;
  ~Decoder() { lzma_end(&stream_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  lzma_ret open() { return lzma_stream_decoder(&stream_, UINT64_MAX, LZMA_CONCATENATED); }
  Result<UnpackStep> step(std::string_view packed, std::span<char> room) {
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
    stream_.avail_in = packed.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(room.data());
    stream_.avail_out = room.size();
    const lzma_ret code = lzma_code(&stream_, LZMA_FINISH);
    if (code != LZMA_OK && code != LZMA_STREAM_END) return failure(code);
    UnpackStep done;
    done.taken = packed.size() - stream_.avail_in;
    done.made = room.size() - stream_.avail_out;
    done.is_over = code == LZMA_STREAM_END;
    return done;
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

}  // namespace

Result<std::vector<char>> unpack_xz(std::string_view packed) {
  Decoder decoder;
  if (const lzma_ret code = decoder.open(); code != LZMA_OK) return failure(code);
  return unpack(packed, kExpectedTimes, [&](std::string_view input, std::span<char> room) {
    return decoder.step(input, room);
  });
}

#else

Result<std::vector<char>> unpack_xz(std::string_view) {
  return Status(Code::kUnavailable,
                "is packed with xz and this build has no liblzma: unpack it with `xz -dc`");
}

#endif

}  // namespace dunlin::svm
