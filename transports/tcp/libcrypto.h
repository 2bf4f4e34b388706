// Libcrypto: the ciphers of OpenSSL's libcrypto. They yield the same bytes as those of libsodium,
// and are several times as fast on large frames, because they use the CPU's wide vectors. They
// may be missing: from the build, or because the administrator of the host has forbidden a cipher.
// One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

struct evp_cipher_ctx_st;

namespace dunlin::transport::tcp {

class Libcrypto {
 public:
  enum class Cipher { kAes256Gcm, kChaCha20Poly1305 };
  enum class Use { kSeal, kOpen };
  using Key = std::span<const unsigned char, 32>;
  using Nonce = std::span<const unsigned char, 12>;

  // Whether this build contains it.
  static bool is_built_in();
  // Loads the library's own state, which the first use does otherwise. At the end of the process,
  // what is registered with std::atexit later runs while the library can still be used.
  static void load();

  // Prepares the key. If that fails, is_ready() is false, and seal() and open() must not be called.
  void start(Cipher cipher, Use use, Key key);
  bool is_ready() const { return context_ != nullptr; }
  // Replaces the key.
  void rekey(Key key);

  // Encrypts `size` bytes at `plain` into `sealed`, which may be `plain`, and writes the tag of 16
  // bytes behind them. Returns whether it has succeeded.
  bool seal(Nonce nonce, std::span<const std::byte> header, const std::byte* plain,
            std::size_t size, std::byte* sealed);
  // Decrypts `size` bytes at `sealed`, whose tag is behind them. If it returns false, `plain`
  // may hold anything.
  bool open(Nonce nonce, std::span<const std::byte> header, const std::byte* sealed,
            std::size_t size, std::byte* plain);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace dunlin::transport::tcp
