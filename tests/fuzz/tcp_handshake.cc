// The handshake of a tcp connection (transports/tcp/handshake.h). The input is what a stranger
// changes in the greetings of two members: with one bit of them changed, they don't meet.
#include "transports/tcp/handshake.h"

#include <algorithm>

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace transport::tcp;

// Changes the greeting in the bits that are set in the next bytes of the input. False: in none.
template <typename Greeting>
bool change(Greeting& greeting, Input& input) {
  const auto bits = input.take_bytes(sizeof greeting);
  const auto bytes = std::as_writable_bytes(std::span(&greeting, 1));
  for (std::size_t i = 0; i < bits.size(); ++i) bytes[i] ^= bits[i];
  return std::ranges::any_of(bits, [](std::byte b) { return b != std::byte{0}; });
}

void check(Input input) {
  JobKey key{};
  key[0] = std::byte{1};
  const auto flags = input.take<std::uint8_t>();
  Purpose purpose;
  purpose.source = Rank(0);
  purpose.target = Rank(1);
  purpose.target_token = 77;
  purpose.origin.depth = 1 + input.take<std::uint16_t>();
  ClientHandshake client({key, (flags & 1) != 0}, purpose);
  ServerHandshake server({key, (flags & 2) != 0}, Rank(1), 77);

  ClientHello hello = client.hello();
  const bool is_hello_changed = change(hello, input);
  auto answer = server.on_hello(hello, 2);
  FUZZ_CHECK(answer.is_ok() != is_hello_changed);
  if (!answer) return;
  FUZZ_CHECK(server.purpose().source == Rank(0) &&
             server.purpose().origin.depth == purpose.origin.depth);

  const bool is_answer_changed = change(*answer, input);
  auto proof = client.on_answer(*answer);
  FUZZ_CHECK(proof.is_ok() != is_answer_changed);
  if (!proof) return;

  const bool is_proof_changed = change(*proof, input);
  FUZZ_CHECK(server.on_proof(*proof).is_ok() != is_proof_changed);
  if (is_proof_changed) return;
  FUZZ_CHECK(client.keys().cipher == server.keys().cipher);
  FUZZ_CHECK((client.keys().cipher == CipherKind::kNone) == ((flags & 3) == 0));
  FUZZ_CHECK(client.keys().to_server == server.keys().to_server);
  FUZZ_CHECK(client.keys().to_client == server.keys().to_client);
}

Seed seed(std::string name, std::uint8_t flags, std::size_t changed) {
  Bytes bytes(3 + sizeof(ClientHello) + sizeof(ServerHello) + sizeof(ClientProof));
  bytes[0] = static_cast<std::byte>(flags);
  if (changed < bytes.size()) bytes[changed] = std::byte{1};
  return {std::move(name), bytes};
}

}  // namespace

std::vector<Seed> seeds() {
  return {seed("plain", 0, SIZE_MAX), seed("encrypted", 3, SIZE_MAX),
          seed("changed_hello", 1, 3 + 12), seed("changed_answer", 2, 3 + sizeof(ClientHello) + 9),
          seed("changed_proof", 0, 3 + sizeof(ClientHello) + sizeof(ServerHello))};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool is_ready = sodium_init() >= 0;
  if (!is_ready) std::abort();
  dunlin::fuzz::check(dunlin::fuzz::Input(data, size));
  return 0;
}
