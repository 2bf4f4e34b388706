// BLAKE2b-256 of bytes that may lie in several places. Stateless; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace dunlin::cnn {

using Digest = std::array<std::byte, 32>;

// Of all parts, one behind the other.
Digest digest_of(std::initializer_list<std::span<const std::byte>> parts);

}  // namespace dunlin::cnn
