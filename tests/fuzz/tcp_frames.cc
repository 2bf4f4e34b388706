// The stream of frames of a tcp connection (transports/tcp/frame_reader.h). It means the same
// however the network cuts it, nothing is written beyond where a payload belongs, and of an
// encrypted stream that was changed, nothing is taken from the first changed byte on.
#include "transports/tcp/frame_reader.h"

#include <sys/socket.h>

#include <algorithm>

#include "runtime/fd.h"
#include "tests/fuzz/harness.h"
#include "transports/tcp/wire.h"

namespace dunlin::fuzz {
namespace {

using namespace transport::tcp;

constexpr std::size_t kMostPayload = 1 << 16;
constexpr Key kKey{1, 2, 3};

void append(Bytes& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

// What the owner of a connection does with what arrives (transports/tcp/inbox.cc), in short.
class Reading {
 public:
  explicit Reading(CipherKind cipher) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) ::abort();
    here_ = Fd(ends[0]);
    there_ = Fd(ends[1]);
    reader_.start(cipher, kKey);
  }

  // False once the connection is broken.
  bool take(std::span<const std::byte> piece) {
    FUZZ_CHECK(::send(there_.get(), piece.data(), piece.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(piece.size()));
    for (;;) {
      std::size_t budget = piece.size();
      const Status status = reader_.fill(here_.get(), budget);
      if (status.is_busy()) return true;
      FUZZ_CHECK(status.is_ok());
      if (!take_items()) return false;
    }
  }
  const Bytes& seen() const { return seen_; }

 private:
  bool take_items() {
    for (;;) {
      const auto item = reader_.next();
      if (!item) return false;
      if (*item == FrameReader::Item::kNothing) return true;
      if (*item == FrameReader::Item::kPayload) {
        append(seen_, payload_);
        payload_.clear();
        payload_.shrink_to_fit();
        continue;
      }
      append(seen_, reader_.body());
      if (*item == FrameReader::Item::kAnswers) continue;
      std::span<const std::byte> rest = reader_.body();
      while (!rest.empty()) {
        const auto message = Message::take(rest);
        if (!message) return false;
        if (message->header.has(kPayloadFollows)) expect(message->header.size);
      }
    }
  }
  // A payload of another size than the region's is dropped as it arrives.
  void expect(std::uint64_t size) {
    if (size > kMostPayload) return reader_.expect(nullptr, size);
    payload_.resize(size);
    reader_.expect(payload_.data(), size);
  }

  Fd here_;
  Fd there_;
  FrameReader reader_;
  Bytes payload_;
  Bytes seen_;
};

Bytes read_in_pieces(CipherKind cipher, std::span<const std::byte> stream, std::size_t piece) {
  Reading reading(cipher);
  while (!stream.empty()) {
    const auto next = stream.first(std::min(piece, stream.size()));
    stream = stream.subspan(next.size());
    if (!reading.take(next)) break;
  }
  return reading.seen();
}

void check_plain(std::span<const std::byte> stream, std::size_t piece) {
  const Bytes whole = read_in_pieces(CipherKind::kNone, stream, 1 << 15);
  FUZZ_CHECK(read_in_pieces(CipherKind::kNone, stream, piece) == whole);
}

// The frames of a plain stream, sealed.
Bytes seal(CipherKind kind, std::span<const std::byte> stream) {
  Cipher cipher(kind, Cipher::Use::kSeal, kKey);
  Bytes sealed;
  while (stream.size() >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, stream.data(), sizeof header);
    const auto front = stream.first(sizeof header);
    stream = stream.subspan(sizeof header);
    if (header.size > stream.size() || header.size > kFrameBytes) break;
    append(sealed, front);
    sealed.resize(sealed.size() + header.size + kTagBytes);
    FUZZ_CHECK(cipher.seal(front, stream.data(), header.size,
                           sealed.data() + sealed.size() - header.size - kTagBytes));
    stream = stream.subspan(header.size);
  }
  return sealed;
}

void check_sealed(CipherKind kind, std::span<const std::byte> stream, std::size_t piece,
                  std::size_t changed) {
  Bytes sealed = seal(kind, stream);
  const Bytes whole = read_in_pieces(kind, sealed, 1 << 15);
  FUZZ_CHECK(read_in_pieces(kind, sealed, piece) == whole);
  if (sealed.empty()) return;
  sealed[changed % sealed.size()] ^= std::byte{1};
  const Bytes part = read_in_pieces(kind, sealed, piece);
  FUZZ_CHECK(part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin()));
}

void add_frame(Bytes& stream, FrameKind kind, std::span<const std::byte> body) {
  FrameHeader header{};
  header.size = static_cast<std::uint32_t>(body.size());
  header.kind = kind;
  append(stream, std::as_bytes(std::span(&header, 1)));
  append(stream, body);
}

Bytes stream_with_payload() {
  const Bytes payload(300, std::byte{9});
  MessageHeader header{};
  header.order = 1;
  header.region = 2;
  header.size = payload.size();
  header.kind = MessageKind::kPut;
  header.flags = kPayloadFollows;
  MessageHeader notify{};
  notify.order = 2;
  notify.kind = MessageKind::kNotify;
  Bytes stream;
  add_frame(stream, FrameKind::kMessages, std::as_bytes(std::span(&header, 1)));
  add_frame(stream, FrameKind::kPayload, std::span(payload).first(200));
  add_frame(stream, FrameKind::kPayload, std::span(payload).subspan(200));
  add_frame(stream, FrameKind::kMessages, std::as_bytes(std::span(&notify, 1)));
  return stream;
}

// The input begins with what it is about: the cipher, the size of the pieces, the changed byte.
Seed seed(std::string name, std::uint8_t cipher) {
  ByteWriter writer;
  writer.number(cipher).number(std::uint16_t{13}).number(std::uint16_t{40});
  Bytes bytes = writer.take();
  append(bytes, stream_with_payload());
  return {std::move(name), bytes};
}

}  // namespace

std::vector<Seed> seeds() {
  return {seed("plain", 0), seed("aes", 1), seed("chacha", 2)};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  using dunlin::transport::tcp::CipherKind;
  static const bool is_ready = sodium_init() >= 0;
  if (!is_ready) std::abort();
  Input input(data, size);
  auto kind = static_cast<CipherKind>(input.take<std::uint8_t>() % 3);
  if (kind == CipherKind::kAes256Gcm && !dunlin::transport::tcp::has_aes())
    kind = CipherKind::kChaCha20Poly1305;
  const std::size_t piece = 1 + input.take<std::uint16_t>() % 4096;
  const std::size_t changed = input.take<std::uint16_t>();
  const auto stream = input.rest().first(std::min(input.rest().size(), std::size_t{1} << 15));
  if (kind == CipherKind::kNone) {
    check_plain(stream, piece);
  } else {
    check_sealed(kind, stream, piece, changed);
  }
  return 0;
}
