// The job secret and the proofs of its knowledge. A process that knows it may join the job.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;  // HMAC-SHA256

Nonce random_nonce();
std::string to_hex(std::span<const std::byte> bytes);
// Returns `bytes` random bytes as hexadecimal digits, for secrets and job ids.
std::string random_hex(std::size_t bytes);

// The first line of a file. The error says what to change when others than its owner may access it.
Result<std::string> read_secret_file(const std::string& path);

// One side of a handshake proves by a HMAC over these claims that it knows the secret. A proof
// cannot be reflected, because it contains the role. It cannot be replayed, because it contains
// both nonces. It is valid for one rank and one job only.
enum class Role : std::uint8_t { kMember = 1, kCoordinator = 2 };
struct Claims {
  Role role = Role::kMember;
  Nonce member_nonce{};
  Nonce coordinator_nonce{};
  std::string_view job_id{};
  Rank rank{};
  int size = 0;
  int founders = 0;                // ranks that start the job; 0: the rank does not know
  std::uint64_t heartbeat_ns = 0;  // the coordinator's heartbeat period; 0 in a member's proof
  std::uint64_t grace_ns = 0;      // how long a rank may be away; 0 in a member's proof
  std::string_view process{};      // ProcessId of the process that proves
  Nonce session{};                 // key of the session that is resumed; zeros: a new one
  std::uint64_t received = 0;      // messages of the session that have arrived
};
Proof prove(std::string_view secret, const Claims& claims);
// The coordinator's proof in a rejection: over the claims of the rank and over the reason.
Proof prove_rejection(std::string_view secret, const Claims& claims, Code code,
                      std::string_view reason);

// The key of the session that begins with a handshake, from the coordinator's claims in it. Both
// sides know it, and nobody else.
Nonce derive_session(std::string_view secret, const Claims& claims);

// HMAC-SHA256, of which the proofs of all protocols are made. The text begins with what it is for.
Proof sign(std::span<const std::byte> key, std::span<const std::byte> text);
// Takes the same time for all contents. False if the lengths differ.
bool equals(std::span<const std::byte> proof, const Proof& expected);

// The key of a job's transports. It does not reveal the secret.
JobKey derive_key(std::string_view secret, std::string_view job_id);

// Checks a proof in time that does not depend on its contents. False when its length is wrong.
bool proves(std::span<const std::byte> proof, std::string_view secret, const Claims& claims);
bool proves_rejection(std::span<const std::byte> proof, std::string_view secret,
                      const Claims& claims, Code code, std::string_view reason);

}  // namespace dunlin::bootstrap
