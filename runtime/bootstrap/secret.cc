#include "runtime/bootstrap/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>

#include "runtime/bootstrap/wire.h"
#include "runtime/bytes.h"
#include "runtime/fd.h"

namespace dunlin::bootstrap {
namespace {

static_assert(crypto_auth_hmacsha256_BYTES == std::tuple_size_v<Proof>);

void fill_random(std::span<std::byte> bytes) {
  static const bool kIsReady = sodium_init() >= 0;
  if (!kIsReady) std::abort();  // without a source of randomness, no secret is safe
  randombytes_buf(bytes.data(), bytes.size());
}

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

void append(ByteWriter& text, const Claims& claims) {
  text.number(kVersion)
      .number(static_cast<std::uint8_t>(claims.role))
      .blob(claims.member_nonce)
      .blob(claims.coordinator_nonce)
      .text(claims.job_id)
      .number(static_cast<std::int32_t>(claims.rank.value()))
      .number(static_cast<std::int32_t>(claims.size))
      .number(static_cast<std::int32_t>(claims.founders))
      .number(claims.heartbeat_ns)
      .number(claims.grace_ns)
      .text(claims.process)
      .blob(claims.session)
      .number(claims.received);
}

}  // namespace

Proof sign(std::span<const std::byte> key, std::span<const std::byte> text) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, raw(key), key.size());
  crypto_auth_hmacsha256_update(&state, raw(text), text.size());
  Proof signature;
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(signature.data()));
  return signature;
}

bool equals(std::span<const std::byte> proof, const Proof& expected) {
  return proof.size() == expected.size() &&
         sodium_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

Nonce random_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), raw(bytes), bytes.size());
  text.pop_back();
  return text;
}

std::string random_hex(std::size_t bytes) {
  Bytes random(bytes);
  fill_random(random);
  return to_hex(random);
}

Result<std::string> read_secret_file(const std::string& path) {
  const std::string what = fmt::format("the secret file '{}'", path);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return Status::from_errno(what, errno);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return Status::from_errno(what, errno);
  if (!S_ISREG(info.st_mode))
    return Status(Code::kInvalidArgument, what + " is not a regular file");
  if ((info.st_mode & 077) != 0) {
    return Status(Code::kPermissionDenied,
                  fmt::format("{} is accessible to other users (mode {:03o}); run: chmod 600 {}",
                              what, info.st_mode & 0777, path));
  }
  std::string text(4096, '\0');
  const ssize_t got = read(file.get(), text.data(), text.size());
  if (got < 0) return Status::from_errno(what, errno);
  text.resize(static_cast<std::size_t>(got));
  text.resize(std::min(text.find_first_of("\r\n"), text.size()));
  if (text.empty()) return Status(Code::kInvalidArgument, what + " is empty");
  return text;
}

Proof prove(std::string_view secret, const Claims& claims) {
  ByteWriter signed_text;
  signed_text.text("dunlin bootstrap");
  append(signed_text, claims);
  return sign(as_bytes(secret), signed_text.take());
}

Proof prove_rejection(std::string_view secret, const Claims& claims, Code code,
                      std::string_view reason) {
  ByteWriter signed_text;
  signed_text.text("dunlin bootstrap rejection");
  append(signed_text, claims);
  signed_text.number(static_cast<std::uint8_t>(code)).text(reason);
  return sign(as_bytes(secret), signed_text.take());
}

Nonce derive_session(std::string_view secret, const Claims& claims) {
  ByteWriter purpose;
  purpose.text("dunlin session");
  append(purpose, claims);
  return sign(as_bytes(secret), purpose.take());
}

JobKey derive_key(std::string_view secret, std::string_view job_id) {
  ByteWriter purpose;
  purpose.text("dunlin transports").text(job_id);
  return sign(as_bytes(secret), purpose.take());
}

bool proves(std::span<const std::byte> proof, std::string_view secret, const Claims& claims) {
  return equals(proof, prove(secret, claims));
}

bool proves_rejection(std::span<const std::byte> proof, std::string_view secret,
                      const Claims& claims, Code code, std::string_view reason) {
  return equals(proof, prove_rejection(secret, claims, code, reason));
}

}  // namespace dunlin::bootstrap
