#include "apps/svm/xz.h"

#if DUNLIN_HAVE_LZMA
#include <lzma.h>
#endif

#include <cstdint>

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

}  // namespace

Result<std::vector<char>> unpack_xz(std::string_view packed) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (const lzma_ret code = lzma_stream_decoder(&stream, UINT64_MAX, LZMA_CONCATENATED);
      code != LZMA_OK) {
    return failure(code);
  }
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();

  // Text packs to about a quarter; the buffer doubles where that was too little.
  std::vector<char> unpacked(packed.size() * 4 + 4096);
  lzma_ret code = LZMA_OK;
  while (code == LZMA_OK) {
    if (stream.total_out == unpacked.size()) unpacked.resize(unpacked.size() * 2);
    stream.next_out = reinterpret_cast<std::uint8_t*>(unpacked.data()) + stream.total_out;
    stream.avail_out = unpacked.size() - stream.total_out;
    code = lzma_code(&stream, LZMA_FINISH);
  }
  unpacked.resize(stream.total_out);
  lzma_end(&stream);
  if (code != LZMA_STREAM_END) return failure(code);
  return unpacked;
}

#else

Result<std::vector<char>> unpack_xz(std::string_view) {
  return Status(Code::kUnavailable,
                "is packed with xz and this build has no liblzma: unpack it with `xz -dc`");
}

#endif

}  // namespace dunlin::svm
