#include "apps/digest.h"

#include <fmt/format.h>
#include <sodium.h>

#include <cstring>

namespace dunlin {

// The hash needs no sodium_init(); that would only choose its fastest implementation.
Digest digest_of(std::initializer_list<std::span<const std::byte>> parts) {
  Digest digest;
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, digest.size());
  for (const auto part : parts) {
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(part.data()),
                              part.size());
  }
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(digest.data()), digest.size());
  return digest;
}

// The first byte is the lowest.
Digest sum_of(const Digest& one, const Digest& other) {
  Digest sum;
  unsigned carry = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    carry += std::to_integer<unsigned>(one[i]) + std::to_integer<unsigned>(other[i]);
    sum[i] = static_cast<std::byte>(carry & 0xFF);
    carry >>= 8;
  }
  return sum;
}

std::uint64_t number_of(const Digest& digest) {
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

std::string to_string(const Digest& digest) {
  std::string text;
  for (const std::byte each : std::span(digest).first<8>())
    text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

}  // namespace dunlin
