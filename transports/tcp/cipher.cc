#include "transports/tcp/cipher.h"

#include <cstring>
#include <string_view>

namespace dunlin::transport::tcp {
namespace {

static_assert(crypto_aead_aes256gcm_KEYBYTES == std::tuple_size_v<Key> &&
              crypto_aead_chacha20poly1305_ietf_KEYBYTES == std::tuple_size_v<Key>);
static_assert(crypto_aead_aes256gcm_ABYTES == kTagBytes &&
              crypto_aead_chacha20poly1305_ietf_ABYTES == kTagBytes);
static_assert(crypto_aead_aes256gcm_NPUBBYTES == 12 &&
              crypto_aead_chacha20poly1305_ietf_NPUBBYTES == 12);

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

}  // namespace

const char* to_string(CipherKind kind) {
  switch (kind) {
    case CipherKind::kNone:
      return "not encrypted";
    case CipherKind::kAes256Gcm:
      return "AES-256-GCM";
    case CipherKind::kChaCha20Poly1305:
      return "ChaCha20-Poly1305";
  }
  return "unknown";
}

bool has_aes() {
  return crypto_aead_aes256gcm_is_available() != 0;
}

Cipher::Cipher(CipherKind kind, Use use, const Key& key, Library library) : kind_(kind), key_(key) {
  if (library == Library::kFastest) {
    libcrypto_.start(kind == CipherKind::kAes256Gcm ? Libcrypto::Cipher::kAes256Gcm
                                                    : Libcrypto::Cipher::kChaCha20Poly1305,
                     use, key_);
  }
  load();
}

Cipher::~Cipher() {
  sodium_memzero(key_.data(), key_.size());
  sodium_memzero(&aes_, sizeof aes_);
}

Cipher::Nonce Cipher::nonce() const {
  Nonce nonce{};
  std::memcpy(nonce.data(), &frames_, sizeof frames_);
  return nonce;
}

void Cipher::load() {
  if (kind_ == CipherKind::kAes256Gcm) crypto_aead_aes256gcm_beforenm(&aes_, key_.data());
}

void Cipher::count_frame() {
  if (++frames_ % kFramesPerKey != 0) return;
  constexpr std::string_view kPurpose = "dunlin tcp next key";
  Key next;
  crypto_generichash(next.data(), next.size(),
                     reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size(),
                     key_.data(), key_.size());
  key_ = next;
  sodium_memzero(next.data(), next.size());
  if (libcrypto_.is_ready()) libcrypto_.rekey(key_);
  load();
}

bool Cipher::seal(std::span<const std::byte> header, const std::byte* plain, std::size_t size,
                  std::byte* sealed) {
  const Nonce number = nonce();
  if (!libcrypto_.is_ready()) {
    seal_by_libsodium(number, header, plain, size, sealed);
  } else if (!libcrypto_.seal(number, header, plain, size, sealed)) {
    // libsodium must not try again: `plain` may be overwritten, and sealing twice with one nonce
    // yields the plain text.
    return false;
  }
  count_frame();
  return true;
}

bool Cipher::open(std::span<const std::byte> header, const std::byte* sealed, std::size_t size,
                  std::byte* plain) {
  const Nonce number = nonce();
  if (libcrypto_.is_ready()) {
    if (!libcrypto_.open(number, header, sealed, size, plain)) {
      sodium_memzero(plain, size);
      return false;
    }
  } else if (!open_by_libsodium(number, header, sealed, size, plain)) {
    return false;
  }
  count_frame();
  return true;
}

void Cipher::seal_by_libsodium(const Nonce& nonce, std::span<const std::byte> header,
                               const std::byte* plain, std::size_t size, std::byte* sealed) {
  unsigned char* const tag = raw(sealed + size);
  if (kind_ == CipherKind::kAes256Gcm) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(raw(sealed), tag, nullptr, raw(plain), size,
                                                   raw(header.data()), header.size(), nullptr,
                                                   nonce.data(), &aes_);
  } else {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(raw(sealed), tag, nullptr, raw(plain), size,
                                                       raw(header.data()), header.size(), nullptr,
                                                       nonce.data(), key_.data());
  }
}

bool Cipher::open_by_libsodium(const Nonce& nonce, std::span<const std::byte> header,
                               const std::byte* sealed, std::size_t size, std::byte* plain) {
  const unsigned char* const tag = raw(sealed + size);
  const int failure = kind_ == CipherKind::kAes256Gcm
                          ? crypto_aead_aes256gcm_decrypt_detached_afternm(
                                raw(plain), nullptr, raw(sealed), size, tag, raw(header.data()),
                                header.size(), nonce.data(), &aes_)
                          : crypto_aead_chacha20poly1305_ietf_decrypt_detached(
                                raw(plain), nullptr, raw(sealed), size, tag, raw(header.data()),
                                header.size(), nonce.data(), key_.data());
  return failure == 0;
}

}  // namespace dunlin::transport::tcp
