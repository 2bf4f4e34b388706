// BLAKE2b-256 of bytes that may lie in several places. Stateless; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace dunlin {

using Digest = std::array<std::byte, 32>;

// The digest of all parts in a row.
Digest digest_of(std::initializer_list<std::span<const std::byte>> parts);
// The sum of two digests, as numbers modulo 2^256. The sum of the digests of all elements of a set
// tells sets apart whatever the order of the elements is, and the sums of its parts add up to it.
Digest sum_of(const Digest& one, const Digest& other);
// Its first eight bytes.
std::uint64_t number_of(const Digest& digest);
// The same in hexadecimal, to be shown.
std::string to_string(const Digest& digest);

}  // namespace dunlin
