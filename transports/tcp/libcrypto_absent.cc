// Stands in for libcrypto.cc in a build without libcrypto. Nothing is ever ready.
#include "transports/tcp/libcrypto.h"

namespace dunlin::transport::tcp {

bool Libcrypto::is_built_in() {
  return false;
}
void Libcrypto::load() {}
void Libcrypto::Free::operator()(evp_cipher_ctx_st*) const {}
void Libcrypto::start(Cipher, Use, Key) {}
void Libcrypto::rekey(Key) {}
bool Libcrypto::seal(Nonce, std::span<const std::byte>, const std::byte*, std::size_t, std::byte*) {
  return false;
}
bool Libcrypto::open(Nonce, std::span<const std::byte>, const std::byte*, std::size_t, std::byte*) {
  return false;
}

}  // namespace dunlin::transport::tcp
