#include "transports/tcp/handshake.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

namespace dunlin::transport::tcp {
namespace {

constexpr std::uint64_t kMagic = 0x5043542d4c4e5544;  // "DUNL-TCP"

static_assert(crypto_scalarmult_BYTES == 32 && crypto_scalarmult_SCALARBYTES == 32);

class Hash {
 public:
  explicit Hash(std::span<const unsigned char> key) {
    crypto_generichash_init(&state_, key.data(), key.size(), 32);
  }
  ~Hash() { sodium_memzero(&state_, sizeof state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  Hash& add(const void* bytes, std::size_t size) {
    crypto_generichash_update(&state_, static_cast<const unsigned char*>(bytes), size);
    return *this;
  }
  Hash& add(std::string_view text) { return add(text.data(), text.size()); }
  std::array<unsigned char, 32> take() {
    std::array<unsigned char, 32> result;
    crypto_generichash_final(&state_, result.data(), result.size());
    return result;
  }

 private:
  crypto_generichash_state state_;
};

std::span<const unsigned char> raw(const JobKey& key) {
  return {reinterpret_cast<const unsigned char*>(key.data()), key.size()};
}

Proof prove_hello(const JobKey& key, const ClientHello& hello) {
  return Hash(raw(key)).add("dunlin tcp hello").add(&hello, offsetof(ClientHello, proof)).take();
}

// What both ends derive once they know each other's greetings.
struct Agreement {
  SessionKeys keys;
  Proof server;
  Proof client;
};

Result<Agreement> agree(const JobKey& key, const ClientHello& hello, const ServerHello& answer,
                        std::span<const unsigned char> secret,
                        const std::array<unsigned char, 32>& peers_key) {
  std::array<unsigned char, 32> shared;
  if (crypto_scalarmult(shared.data(), secret.data(), peers_key.data()) != 0)
    return Status(Code::kPermissionDenied, "the peer's public key is invalid");
  Key root = Hash(raw(key))
                 .add("dunlin tcp session")
                 .add(&hello, sizeof hello)
                 .add(&answer, offsetof(ServerHello, proof))
                 .add(shared.data(), shared.size())
                 .take();
  sodium_memzero(shared.data(), shared.size());
  const auto derive = [&](std::string_view purpose) { return Hash(root).add(purpose).take(); };
  Agreement made;
  made.keys.cipher = CipherKind{answer.cipher};
  made.keys.to_server = derive("client to server");
  made.keys.to_client = derive("server to client");
  made.server = derive("server proof");
  made.client = derive("client proof");
  sodium_memzero(root.data(), root.size());
  return made;
}

bool is_equal(const Proof& first, const Proof& second) {
  return sodium_memcmp(first.data(), second.data(), first.size()) == 0;
}

}  // namespace

SessionKeys::~SessionKeys() {
  sodium_memzero(to_server.data(), to_server.size());
  sodium_memzero(to_client.data(), to_client.size());
}

ClientHandshake::ClientHandshake(const Credentials& mine, const Purpose& purpose) : mine_(mine) {
  hello_.magic = kMagic;
  hello_.version = kWireVersion;
  hello_.lane = static_cast<std::uint8_t>(purpose.lane);
  hello_.wants_encryption = mine.wants_encryption ? 1 : 0;
  hello_.has_aes = has_aes() ? 1 : 0;
  hello_.source = static_cast<std::uint32_t>(purpose.source.value());
  hello_.target = static_cast<std::uint32_t>(purpose.target.value());
  hello_.depth = purpose.origin.depth;
  hello_.source_token = purpose.origin.token;
  hello_.target_token = purpose.target_token;
  hello_.incarnation = purpose.origin.incarnation;
  hello_.attempt = purpose.origin.attempt;
  crypto_box_keypair(hello_.public_key.data(), secret_key_.data());
  randombytes_buf(hello_.nonce.data(), hello_.nonce.size());
  hello_.proof = prove_hello(mine.key, hello_);
}

ClientHandshake::~ClientHandshake() {
  sodium_memzero(secret_key_.data(), secret_key_.size());
}

Result<ClientProof> ClientHandshake::on_answer(const ServerHello& answer) {
  if (answer.magic != kMagic || answer.version != kWireVersion ||
      answer.cipher > static_cast<std::uint8_t>(CipherKind::kChaCha20Poly1305)) {
    return Status(Code::kPermissionDenied, "it is not a Dunlin process of this version");
  }
  DUNLIN_ASSIGN(const Agreement made,
                agree(mine_.key, hello_, answer, secret_key_, answer.public_key));
  if (!is_equal(answer.proof, made.server))
    return Status(Code::kPermissionDenied, "it does not know the job's secret");
  if (made.keys.cipher == CipherKind::kAes256Gcm && !has_aes())
    return Status(Code::kPermissionDenied, "it chose a cipher that this CPU does not have");
  if (mine_.wants_encryption && made.keys.cipher == CipherKind::kNone)
    return Status(Code::kPermissionDenied, "it refuses to encrypt");
  keys_ = made.keys;
  return ClientProof{made.client};
}

Result<ServerHello> ServerHandshake::on_hello(const ClientHello& hello, int job_size) {
  if (hello.magic != kMagic || hello.version != kWireVersion)
    return Status(Code::kPermissionDenied, "it is not a Dunlin process of this version");
  if (!is_equal(hello.proof, prove_hello(mine_.key, hello)))
    return Status(Code::kPermissionDenied, "it does not know the job's secret");
  if (hello.source >= static_cast<std::uint32_t>(job_size) || hello.lane >= kLaneKinds ||
      hello.depth == 0 || hello.depth > kMostPendingReads) {
    return Status(Code::kPermissionDenied,
                  fmt::format("it claims to be rank {} of a job of {}", hello.source, job_size));
  }
  if (hello.target != static_cast<std::uint32_t>(self_.value()) || hello.target_token != token_) {
    return Status(
        Code::kPermissionDenied,
        fmt::format("rank {} wants to reach another process, rank {}", hello.source, hello.target));
  }
  purpose_.source = Rank(static_cast<int>(hello.source));
  purpose_.target = self_;
  purpose_.lane = LaneKind{hello.lane};
  purpose_.target_token = hello.target_token;
  purpose_.origin = {hello.source_token, hello.incarnation, hello.attempt, hello.depth};
  ServerHello answer{};
  answer.magic = kMagic;
  answer.version = kWireVersion;
  CipherKind cipher = CipherKind::kNone;
  if (mine_.wants_encryption || hello.wants_encryption != 0) {
    cipher =
        has_aes() && hello.has_aes != 0 ? CipherKind::kAes256Gcm : CipherKind::kChaCha20Poly1305;
  }
  answer.cipher = static_cast<std::uint8_t>(cipher);
  std::array<unsigned char, 32> secret_key;
  crypto_box_keypair(answer.public_key.data(), secret_key.data());
  randombytes_buf(answer.nonce.data(), answer.nonce.size());
  auto made = agree(mine_.key, hello, answer, secret_key, hello.public_key);
  sodium_memzero(secret_key.data(), secret_key.size());
  if (!made) return std::move(made).status();
  answer.proof = made->server;
  expected_ = made->client;
  keys_ = made->keys;
  return answer;
}

Status ServerHandshake::on_proof(const ClientProof& proof) const {
  if (is_equal(proof.proof, expected_)) return Status::ok();
  return {Code::kPermissionDenied, "it could not prove that it sent its greeting"};
}

}  // namespace dunlin::transport::tcp
