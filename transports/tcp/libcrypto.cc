#include "transports/tcp/libcrypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

namespace dunlin::transport::tcp {

namespace {

constexpr int kTagBytes = 16;
constexpr int kFromInit = -1;  // whether to encrypt stays what it was

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

// All but the tag. EVP_EncryptInit(3): a call without an output takes the header.
bool transform(EVP_CIPHER_CTX* context, Libcrypto::Nonce nonce, std::span<const std::byte> header,
               const std::byte* from, std::size_t size, std::byte* to) {
  int done = 0;
  return EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, nonce.data(), kFromInit) == 1 &&
         EVP_CipherUpdate(context, nullptr, &done, raw(header.data()),
                          static_cast<int>(header.size())) == 1 &&
         EVP_CipherUpdate(context, raw(to), &done, raw(from), static_cast<int>(size)) == 1 &&
         static_cast<std::size_t>(done) == size;
}

}  // namespace

bool Libcrypto::is_built_in() {
  return true;
}

void Libcrypto::load() {
  // Without an option, the call does nothing.
  (void)OPENSSL_init_crypto(OPENSSL_INIT_ADD_ALL_CIPHERS, nullptr);
}

void Libcrypto::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

void Libcrypto::start(Cipher cipher, Use use, Key key) {
  const EVP_CIPHER* const type =
      cipher == Cipher::kAes256Gcm ? EVP_aes_256_gcm() : EVP_chacha20_poly1305();
  context_.reset(EVP_CIPHER_CTX_new());
  const int encrypts = use == Use::kSeal ? 1 : 0;
  if (context_ &&
      EVP_CipherInit_ex(context_.get(), type, nullptr, key.data(), nullptr, encrypts) != 1)
    context_.reset();
}

void Libcrypto::rekey(Key key) {
  if (EVP_CipherInit_ex(context_.get(), nullptr, nullptr, key.data(), nullptr, kFromInit) != 1)
    context_.reset();
}

bool Libcrypto::seal(Nonce nonce, std::span<const std::byte> header, const std::byte* plain,
                     std::size_t size, std::byte* sealed) {
  EVP_CIPHER_CTX* const context = context_.get();
  int done = 0;
  return transform(context, nonce, header, plain, size, sealed) &&
         EVP_CipherFinal_ex(context, raw(sealed + size), &done) == 1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagBytes, sealed + size) == 1;
}

bool Libcrypto::open(Nonce nonce, std::span<const std::byte> header, const std::byte* sealed,
                     std::size_t size, std::byte* plain) {
  EVP_CIPHER_CTX* const context = context_.get();
  // The tag is copied, because the function takes a pointer to bytes that it could change.
  unsigned char tag[kTagBytes];
  for (int i = 0; i < kTagBytes; ++i) tag[i] = raw(sealed + size)[i];
  int done = 0;
  return transform(context, nonce, header, sealed, size, plain) &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag) == 1 &&
         EVP_CipherFinal_ex(context, raw(plain + size), &done) == 1;
}

}  // namespace dunlin::transport::tcp
