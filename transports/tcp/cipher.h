// Cipher: authenticated encryption of the frames that travel in one direction of a connection.
//
// Each frame is sealed with the next number as its nonce, so that a frame that is repeated, left
// out or moved does not open. The frame's header is authenticated with it. After kFramesPerKey
// frames, the key is replaced by one that is derived from it.
//
// libcrypto does the work if it is there, and otherwise libsodium. What travels is the same. One
// thread.
#pragma once

#include <sodium.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/tcp/constants.h"
#include "transports/tcp/libcrypto.h"

namespace dunlin::transport::tcp {

enum class CipherKind : std::uint8_t {
  kNone = 0,  // frames travel as they are
  kAes256Gcm = 1,
  kChaCha20Poly1305 = 2,
};
const char* to_string(CipherKind kind);
// Whether this CPU has the instructions that libsodium's AES-256-GCM needs.
bool has_aes();

using Key = std::array<unsigned char, 32>;
inline constexpr std::size_t kTagBytes = 16;

class Cipher {
 public:
  // Whether the cipher seals frames or opens them. It cannot do both.
  using Use = Libcrypto::Use;
  // The library that does the work. kFastest is libcrypto if it is there, and otherwise libsodium.
  enum class Library : std::uint8_t { kFastest, kLibsodium };

  // `kind` is not kNone.
  Cipher(CipherKind kind, Use use, const Key& key, Library library = Library::kFastest);
  ~Cipher();
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  // Encrypts `size` bytes at `plain` into `sealed`, and writes the tag behind them. `sealed` may be
  // `plain`. If it returns false, the library has failed: `sealed` must not be sent, and the cipher
  // is of no more use.
  [[nodiscard]] bool seal(std::span<const std::byte> header, const std::byte* plain,
                          std::size_t size, std::byte* sealed);
  // Decrypts `size` bytes at `sealed`, whose tag is behind them. Returns false if they are not the
  // next frame that the peer has sealed; then `plain` is unchanged or zeroed. Until the function
  // returns, `plain` may hold bytes that turn out not to be the peer's. `plain` may be `sealed`.
  [[nodiscard]] bool open(std::span<const std::byte> header, const std::byte* sealed,
                          std::size_t size, std::byte* plain);

 private:
  using Nonce = std::array<unsigned char, 12>;
  Nonce nonce() const;
  void load();
  void count_frame();
  void seal_by_libsodium(const Nonce& nonce, std::span<const std::byte> header,
                         const std::byte* plain, std::size_t size, std::byte* sealed);
  bool open_by_libsodium(const Nonce& nonce, std::span<const std::byte> header,
                         const std::byte* sealed, std::size_t size, std::byte* plain);

  CipherKind kind_;
  Key key_;
  std::uint64_t frames_ = 0;
  crypto_aead_aes256gcm_state aes_;  // the expanded key, for libsodium
  Libcrypto libcrypto_;
};

}  // namespace dunlin::transport::tcp
