// What the kernel's TCP, and the cipher, allow a pair of processes, for bench/peers/tcp. Rank 0
// sends to rank 1 through one non-blocking socket; both poll it without pause.
//
//   tcp_limit latency SIZE ITERATIONS WARMUP HOST HOST   half a round trip
//   tcp_limit stream SIZE ITERATIONS WARMUP HOST HOST    SIZE bytes, and a byte back
//   tcp_limit sealed SIZE ITERATIONS WARMUP HOST HOST    the same, encrypted in frames of 64 KiB
//
// HOST is ADDRESS or ADDRESS@NAMESPACE. Prints "us VALUE".
#include <sodium.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string_view>

#include "bench/peers/hosts.h"
#include "bench/peers/ranks.h"
#include "transports/tcp/cipher.h"

namespace {

using namespace dunlin::transport::tcp;

struct Arguments {
  std::string_view kind;
  std::size_t size;
  long iterations;
  long warmup;
  std::vector<peers::Host> hosts;
};

class Connection {
 public:
  explicit Connection(int socket) : socket_(socket) {
    const int one = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(socket_, F_SETFL, O_NONBLOCK);
  }
  void send(const std::byte* from, std::size_t size) {
    while (size != 0) from += next(::send(socket_, from, size, MSG_NOSIGNAL), size);
  }
  void receive(std::byte* to, std::size_t size) {
    while (size != 0) to += next(::recv(socket_, to, size, 0), size);
  }

 private:
  static std::size_t next(ssize_t moved, std::size_t& left) {
    if (moved < 0 && errno == EAGAIN) return 0;
    if (moved <= 0) peers::give_up("the connection");
    left -= static_cast<std::size_t>(moved);
    return static_cast<std::size_t>(moved);
  }
  int socket_;
};

sockaddr_in address_of(const peers::Host& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  if (inet_pton(AF_INET, host.address.c_str(), &address.sin_addr) != 1) peers::give_up("HOST");
  return address;
}

// Rank 1 listens, and tells its port through shared memory.
int meet(const Arguments& arguments, int rank, std::atomic<std::uint32_t>& port) {
  int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (rank == 1) {
    sockaddr_in address = address_of(arguments.hosts[1], 0);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket, generic, size) != 0 || listen(socket, 1) != 0 ||
        getsockname(socket, generic, &size) != 0)
      peers::give_up("listen");
    port = address.sin_port;
    socket = accept(socket, nullptr, nullptr);
  } else {
    while (port == 0) usleep(1000);
    const sockaddr_in address =
        address_of(arguments.hosts[1], static_cast<std::uint16_t>(port.load()));
    if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      peers::give_up("connect");
  }
  return socket;
}

// One direction, with frames as the tcp transport makes them.
class Sealed {
 public:
  Sealed(Connection& connection, Cipher::Use use)
      : connection_(connection), cipher_(CipherKind::kAes256Gcm, use, Key{1}) {}
  void send(const std::byte* from, std::size_t size) {
    for_each_frame(size, [&](std::size_t at, std::size_t bytes) {
      if (!cipher_.seal(header_, from + at, bytes, frame_.data())) peers::give_up("seal");
      connection_.send(frame_.data(), bytes + kTagBytes);
    });
  }
  void receive(std::byte* to, std::size_t size) {
    for_each_frame(size, [&](std::size_t at, std::size_t bytes) {
      connection_.receive(frame_.data(), bytes + kTagBytes);
      if (!cipher_.open(header_, frame_.data(), bytes, to + at)) peers::give_up("open");
    });
  }

 private:
  template <typename Do>
  static void for_each_frame(std::size_t size, Do&& act) {
    for (std::size_t at = 0; at < size; at += kFrameBytes)
      act(at, std::min(kFrameBytes, size - at));
  }
  Connection& connection_;
  Cipher cipher_;
  std::array<std::byte, 8> header_{};
  std::vector<std::byte> frame_ = std::vector<std::byte>(kFrameBytes + kTagBytes);
};

void run(const Arguments& arguments, int rank, std::atomic<std::uint32_t>& port,
         peers::Means* results) {
  peers::move_to(arguments.hosts[static_cast<std::size_t>(rank)]);
  Connection connection(meet(arguments, rank, port));
  const bool sends = rank == 0;
  Sealed sealed(connection, sends ? Cipher::Use::kSeal : Cipher::Use::kOpen);
  std::vector<std::byte> data(arguments.size, std::byte{1});
  std::byte answer{};
  const auto turn = [&](std::byte* bytes, std::size_t size, bool is_mine) {
    if (is_mine) {
      connection.send(bytes, size);
    } else {
      connection.receive(bytes, size);
    }
  };
  const std::function<void()> once = [&] {
    if (arguments.kind == "sealed") {
      if (sends) {
        sealed.send(data.data(), data.size());
      } else {
        sealed.receive(data.data(), data.size());
      }
    } else {
      turn(data.data(), data.size(), sends);
    }
    if (arguments.kind == "latency") {
      turn(data.data(), data.size(), !sends);
    } else {
      turn(&answer, 1, !sends);
    }
  };
  for (long i = 0; i < arguments.warmup; ++i) once();
  peers::time_chunks(
      arguments.iterations, [] {}, once, results[rank]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 || sodium_init() < 0) {
    std::fprintf(stderr,
                 "usage: tcp_limit latency|stream|sealed SIZE ITERATIONS WARMUP HOST HOST\n");
    return 2;
  }
  const Arguments arguments{argv[1], std::strtoul(argv[2], nullptr, 10), std::atol(argv[3]),
                            std::atol(argv[4]), peers::parse_hosts(2, argv + 5)};
  auto* const port = static_cast<std::atomic<std::uint32_t>*>(peers::share(sizeof(std::uint64_t)));
  auto* const results = static_cast<peers::Means*>(peers::share(2 * sizeof(peers::Means)));
  if (!peers::run_ranks(2, [&](int rank) { run(arguments, rank, *port, results); })) return 1;
  const double us = peers::median_of_slowest(results, 1);
  std::printf("us %.4f\n", arguments.kind == "latency" ? us / 2 : us);
  return 0;
}
