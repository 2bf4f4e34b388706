// Messages of the protocol that hands descriptors over (transports/shm/handover.h), as they come
// through its socket, with any number of descriptors. What is accepted has its size and begins with
// the magic number, and no descriptor stays open but the one that is asked for.
#include "transports/shm/handover.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace transport::shm;

enum Mode : std::uint8_t { kChallenge, kResponse, kAcceptance, kRequest, kReply, kModes };

// More than the kernel may hand to a receiver that has room for one.
constexpr std::size_t kMostSent = 4;

// The two ends of a connection, and a descriptor to send.
struct Sockets {
  Sockets() {
    int made[2] = {-1, -1};
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, made) == 0);
    peer = Fd(made[0]);
    own = Fd(made[1]);
    gift = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    FUZZ_CHECK(gift.is_open());
  }
  Fd peer;
  Fd own;
  Fd gift;
};

// The numbers that the next descriptors of this process get.
std::array<int, kMostSent> next_descriptors(const Sockets& sockets) {
  std::array<int, kMostSent> numbers;
  for (int& number : numbers) number = fcntl(sockets.gift.get(), F_DUPFD_CLOEXEC, 0);
  for (const int number : numbers) close(number);
  return numbers;
}

void send(const Sockets& sockets, std::span<const std::byte> message, std::size_t descriptors) {
  std::array<int, kMostSent> gifts;
  gifts.fill(sockets.gift.get());
  const std::size_t size = descriptors * sizeof(int);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof gifts)> control{};
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptors > 0) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const passed = CMSG_FIRSTHDR(&header);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(passed), gifts.data(), size);
  }
  FUZZ_CHECK(sendmsg(sockets.peer.get(), &header, MSG_NOSIGNAL) >= 0);
}

template <typename Message>
void check(std::span<const std::byte> sent, std::size_t descriptors, bool takes_descriptor) {
  static const Sockets sockets;
  const auto before = next_descriptors(sockets);
  send(sockets, sent, descriptors);
  Fd descriptor;
  Message message;
  const Status status =
      receive_message(sockets.own.get(), message, takes_descriptor ? &descriptor : nullptr);
  const bool is_whole = sent.size() == sizeof message;
  const bool is_ours =
      is_whole && std::memcmp(sent.data(), &kHandoverMagic, sizeof kHandoverMagic) == 0;
  FUZZ_CHECK(status.is_ok() == is_ours && !status.is_busy());
  if (status.is_ok()) FUZZ_CHECK(equal(std::as_bytes(std::span(&message, 1)), sent));
  FUZZ_CHECK(descriptor.is_open() == (takes_descriptor && descriptors > 0));
  if (descriptor.is_open())
    FUZZ_CHECK((fcntl(descriptor.get(), F_GETFD) & FD_CLOEXEC) == FD_CLOEXEC);
  descriptor.reset();
  FUZZ_CHECK(next_descriptors(sockets) == before);
}

template <typename Message>
Seed seed(std::string name, Mode mode, std::uint8_t descriptors, const Message& message) {
  return headed_seed(std::move(name), {mode, descriptors, 1},
                     std::as_bytes(std::span(&message, 1)));
}

}  // namespace

std::vector<Seed> seeds() {
  bootstrap::Nonce nonce;
  nonce.fill(std::byte{1});
  bootstrap::Proof proof;
  proof.fill(std::byte{2});
  return {seed("challenge", kChallenge, 0, Challenge{.nonce = nonce}),
          seed("response", kResponse, 0, Response{.nonce = nonce, .proof = proof}),
          seed("acceptance", kAcceptance, 0, Acceptance{.proof = proof}),
          seed("request", kRequest, 0, OfferRequest{.key = 7}),
          seed("reply", kReply, 1, OfferReply{.is_given = 1}),
          seed("reply_with_two", kReply, 2, OfferReply{.is_given = 1})};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  const auto mode = input.take<std::uint8_t>() % kModes;
  const std::size_t descriptors = input.take<std::uint8_t>() % (kMostSent + 1);
  const bool takes = input.take<std::uint8_t>() % 2 != 0;
  // An empty message would be taken for the end of the connection.
  if (input.rest().empty()) return 0;
  const Exact sent(input.rest().first(std::min<std::size_t>(input.rest().size(), 512)));
  if (mode == kChallenge) check<Challenge>(sent.bytes(), descriptors, takes);
  if (mode == kResponse) check<Response>(sent.bytes(), descriptors, takes);
  if (mode == kAcceptance) check<Acceptance>(sent.bytes(), descriptors, takes);
  if (mode == kRequest) check<OfferRequest>(sent.bytes(), descriptors, takes);
  if (mode == kReply) check<OfferReply>(sent.bytes(), descriptors, takes);
  return 0;
}
