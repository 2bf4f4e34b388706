// The handshake of a connection: both ends prove that they belong to the job, and agree on keys.
//
// The end that connects (the client) sends a ClientHello, the other end (the server) answers with a
// ServerHello, and the client ends with a ClientProof. Each has a fixed size. The keys follow from
// an exchange of ephemeral X25519 keys, from both greetings, and from the job's key. An attacker
// that records the connection and learns the job's key later cannot read it. An attacker that does
// not know the job's key can neither take part nor change a byte of the greetings. The ServerHello
// and the ClientProof prove the knowledge of the result, so a recorded greeting is of no use. One
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/rank.h"
#include "runtime/status.h"
#include "transports/tcp/cipher.h"
#include "transports/tcp/wire.h"
#include "transports/transport.h"

namespace dunlin::transport::tcp {

using Proof = std::array<unsigned char, 32>;

// What a connection is for.
struct Purpose {
  Rank source;  // the sender of the lane's operations, which connects
  Rank target;
  LaneKind lane = LaneKind::kData;
  std::uint64_t target_token = 0;  // random number of the target's transport
  Origin origin;
};

struct ClientHello {
  std::uint64_t magic;
  std::uint8_t version;
  std::uint8_t lane;
  std::uint8_t wants_encryption;
  std::uint8_t has_aes;
  std::uint32_t source;
  std::uint32_t target;
  std::uint32_t depth;
  std::uint64_t source_token;
  std::uint64_t target_token;
  std::uint64_t incarnation;
  std::uint64_t attempt;
  std::array<unsigned char, 32> public_key;
  std::array<unsigned char, 32> nonce;
  Proof proof;  // over the fields above, by the job's key
};
static_assert(sizeof(ClientHello) == 152 && std::is_trivially_copyable_v<ClientHello>);

struct ServerHello {
  std::uint64_t magic;
  std::uint8_t version;
  std::uint8_t cipher;
  std::uint8_t reserved[6];
  std::array<unsigned char, 32> public_key;
  std::array<unsigned char, 32> nonce;
  Proof proof;  // by the key that both ends derive
};
static_assert(sizeof(ServerHello) == 112 && std::is_trivially_copyable_v<ServerHello>);

struct ClientProof {
  Proof proof;
};
static_assert(sizeof(ClientProof) == 32);

// The outcome: how each direction is encrypted.
struct SessionKeys {
  CipherKind cipher = CipherKind::kNone;
  Key to_server{};
  Key to_client{};
  SessionKeys() = default;
  SessionKeys(const SessionKeys&) = default;
  SessionKeys& operator=(const SessionKeys&) = default;
  ~SessionKeys();
};

// What one end brings along.
struct Credentials {
  const JobKey& key;
  bool wants_encryption;
};

class ClientHandshake {
 public:
  ClientHandshake(const Credentials& mine, const Purpose& purpose);
  ~ClientHandshake();
  ClientHandshake(const ClientHandshake&) = delete;
  ClientHandshake& operator=(const ClientHandshake&) = delete;

  const ClientHello& hello() const { return hello_; }
  // Checks the answer. Then keys() are valid, and the returned proof must be sent.
  Result<ClientProof> on_answer(const ServerHello& answer);
  const SessionKeys& keys() const { return keys_; }

 private:
  const Credentials mine_;
  ClientHello hello_{};
  std::array<unsigned char, 32> secret_key_{};
  SessionKeys keys_;
};

class ServerHandshake {
 public:
  // This end is `self`, whose transport has the token.
  ServerHandshake(const Credentials& mine, Rank self, std::uint64_t token)
      : mine_(mine), self_(self), token_(token) {}

  // Checks the greeting. The returned answer must be sent.
  Result<ServerHello> on_hello(const ClientHello& hello, int job_size);
  // kPermissionDenied if the client has not proved itself. Then keys() are valid.
  Status on_proof(const ClientProof& proof) const;
  const Purpose& purpose() const { return purpose_; }
  const SessionKeys& keys() const { return keys_; }

 private:
  const Credentials mine_;
  Rank self_;
  std::uint64_t token_;
  Purpose purpose_;
  Proof expected_{};
  SessionKeys keys_;
};

}  // namespace dunlin::transport::tcp
