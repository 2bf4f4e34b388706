// Both sides of the bootstrap's handshake (runtime/bootstrap/handshake.h). Nobody without the
// secret is let in, or believed to be the coordinator. A program that has it is let in only
// with the claims that it has proved.
#include "runtime/bootstrap/handshake.h"

#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/mail.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace bootstrap;

const Authenticator::Job kJob{4, 2, "job", "a secret of more than 16 bytes",
                              std::chrono::seconds(1)};
constexpr std::uint8_t kClient = 1;  // of the modes

// The messages in the input, as they come over a connection.
std::vector<Message> messages_in(std::span<const std::byte> bytes) {
  std::vector<Message> found;
  for (;;) {
    std::size_t consumed = 0;
    auto decoded = decode(bytes, kMaxBodyBytes, consumed);
    if (!decoded || !decoded->has_value()) return found;
    found.push_back(std::move(**decoded));
    bytes = bytes.subspan(consumed);
  }
}

// A proof in the input stands for the true one, changed in the bits that are set in it: of zeros,
// it is that of a member.
void check_server(std::span<const std::byte> bytes) {
  // No rank has a session that it could resume.
  Authenticator server(
      kJob, [](Rank) { return std::nullopt; }, [] { return Result<Rank>(Rank(3)); });
  Claims claims;
  std::string process;
  for (Message message : messages_in(bytes)) {
    bool is_true = false;
    if (message.type == MessageType::kHello && !server.has_hello()) {
      claims.job_id = {};
      claims.rank = message.subject;
      claims.size = static_cast<int>(std::min<std::uint64_t>(message.number, INT32_MAX));
    } else if (message.type == MessageType::kProof && message.value.size() == 32) {
      is_true = std::ranges::all_of(message.value, [](std::byte b) { return b == std::byte{0}; });
      process = message.text;
      claims.process = process;
      claims.received = message.number;
      const Proof proof = prove(kJob.secret, claims);
      for (std::size_t i = 0; i < 32; ++i) message.value[i] ^= proof[i];
    }
    const std::string claimed = message.text;
    const auto nonce = message.value;
    const bool had_hello = server.has_hello();
    const bool was_in = server.is_authenticated();
    auto answer = server.receive(message);
    if (!had_hello && server.has_hello()) {
      FUZZ_CHECK(answer.is_ok() && nonce.size() == claims.member_nonce.size());
      std::ranges::copy(nonce, claims.member_nonce.begin());
      std::ranges::copy(answer->value, claims.coordinator_nonce.begin());
      static std::string kept;
      kept = claimed;
      claims.job_id = kept;
    }
    const bool belongs =
        claims.size == kJob.size && (claims.job_id.empty() || claims.job_id == kJob.id);
    if (server.is_authenticated() && !was_in) FUZZ_CHECK(had_hello && is_true && belongs);
    if (!answer) {
      const Bytes refusal = encode(server.rejection(answer.status()));
      FUZZ_CHECK(refusal.size() <= kHeaderBytes + 256 + kMaxReasonBytes);
    }
    if (server.is_authenticated()) {
      FUZZ_CHECK(server.rank() == claims.rank);
      return;
    }
  }
}

void check_client(std::span<const std::byte> bytes) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
  const Fd there(ends[1]);
  [[maybe_unused]] const auto sent =
      ::send(there.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(there.get(), SHUT_WR);
  Refusal refusal = Refusal::kNone;
  FrameSocket socket{Fd(ends[0])};
  socket.allow_body_bytes(kMaxBodyBytes);
  const TimePoint deadline = SteadyClock().now() + std::chrono::seconds(60);
  const JoinRequest request{Rank(1), kJob.size, "", kJob.secret};
  const auto joined = authenticate(std::move(socket), request, deadline, deadline, refusal);
  FUZZ_CHECK(!joined.is_ok() && refusal != Refusal::kByCoordinator);
  // What a stranger says must not reach a terminal raw.
  const Status status = joined.status();
  FUZZ_CHECK(std::ranges::all_of(status.message(), [](char c) { return c >= ' ' && c <= '~'; }));
}

Seed seed(std::string name, std::uint8_t mode, std::initializer_list<Message> messages) {
  Bytes bytes{static_cast<std::byte>(mode)};
  for (const Message& message : messages) {
    const Bytes encoded = encode(message);
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  return {std::move(name), bytes};
}

}  // namespace

std::vector<Seed> seeds() {
  const Bytes zeros(32);
  const Message hello{.type = MessageType::kHello, .subject = Rank(2), .number = 4, .value = zeros};
  Message of_the_job = hello;
  of_the_job.text = kJob.id;
  Message of_another = hello;
  of_another.text = "another";
  Message too_large = hello;
  too_large.number = 5;
  const Message proof{.type = MessageType::kProof, .text = "host/7/9", .value = zeros};
  return {
      seed("member", 0, {hello, proof}),
      seed("member_of_the_job", 0, {of_the_job, proof}),
      seed("member_of_another", 0, {of_another, proof}),
      seed("member_of_a_larger_job", 0, {too_large, proof}),
      seed("no_coordinator", kClient,
           {{.type = MessageType::kChallenge, .value = zeros},
            {.type = MessageType::kWelcome, .number = 1, .text = "job", .value = zeros}}),
      seed("stranger_refuses", kClient,
           {{.type = MessageType::kReject, .code = Code::kPermissionDenied, .text = "no"}}),
  };
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::Input input(data, size);
  const bool is_client = input.take<std::uint8_t>() % 2 == dunlin::fuzz::kClient;
  is_client ? dunlin::fuzz::check_client(input.rest()) : dunlin::fuzz::check_server(input.rest());
  return 0;
}
