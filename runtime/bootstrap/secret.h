// The job secret and what is proved with it. Whoever knows it may join the job.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;  // HMAC-SHA256

Nonce random_nonce();
// `bytes` random bytes as hexadecimal digits: for secrets and job ids.
std::string random_hex(std::size_t bytes);

// The first line of a file that only its owner can read; else an error that says what to change.
Result<std::string> read_secret_file(const std::string& path);

// What one side of a handshake proves: that it knows the secret, in this role, for this handshake
// (both nonces) and these claims. A proof can be neither reflected (the role differs), nor replayed
// (the nonces differ), nor used for another rank or job.
enum class Role : std::uint8_t { kMember = 1, kCoordinator = 2 };
struct Claims {
  Role role = Role::kMember;
  Nonce member_nonce{};
  Nonce coordinator_nonce{};
  std::string_view job_id{};
  Rank rank{};
  int size = 0;
  std::uint64_t heartbeat_ns = 0;  // what the coordinator asks for; 0 in a member's proof
};
Proof prove(std::string_view secret, const Claims& claims);

// In time that does not depend on the contents. False also when `proof` has another length.
bool proves(std::span<const std::byte> proof, std::string_view secret, const Claims& claims);

}  // namespace dunlin::bootstrap
