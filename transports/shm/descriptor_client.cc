#include "transports/shm/descriptor_client.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "runtime/bootstrap/printable.h"
#include "transports/shm/constants.h"

namespace dunlin::transport::shm {
namespace {

// Returns once there is something to receive. kDeadlineExceeded.
Status await_message(int socket, TimePoint deadline) {
  const SteadyClock clock;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now());
    pollfd entry{socket, POLLIN, 0};
    const int found = poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (found > 0) return Status::ok();
    if (found < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    if (clock.now() >= deadline)
      return {Code::kDeadlineExceeded, "the peer has not answered; is its process stopped?"};
  }
}

template <typename T>
Status await(int socket, T& message, TimePoint deadline, Fd* descriptor = nullptr) {
  for (;;) {
    DUNLIN_TRY(await_message(socket, deadline));
    Status status = receive_message(socket, message, descriptor);
    if (!status.is_busy()) return status;
  }
}

// Errors of a server that has no room because of strangers.
bool is_crowded(const Status& status) {
  return status.is_busy() || status.code() == Code::kClosed || status.code() == Code::kIoError;
}

}  // namespace

Status check_place(const HandoverPlace& place, const std::string& folder) {
  if (place.name.empty()) {
    return {Code::kUnavailable,
            fmt::format("they are in different PID namespaces (containers) of this host, and the "
                        "peer passes no descriptors: {}",
                        bootstrap::printable(place.refusal))};
  }
  if (place.is_in_folder && folder.empty()) {
    return {Code::kUnavailable,
            "they are in different PID namespaces (containers) of this host, and the peer has set "
            "DUNLIN_SHM_DIR: set it here, too, to where this process sees the same folder"};
  }
  if (!place.is_in_folder && place.network_namespace != this_network_namespace()) {
    return {Code::kUnavailable,
            "they are in different PID namespaces (containers) of this host and share no network "
            "namespace: start the containers with one network namespace (as a pod does; "
            "--network=host or --network=container:NAME) or one PID namespace (--pid=host), or set "
            "DUNLIN_SHM_DIR on all ranks to a folder that all containers share, such as /dev/shm "
            "with --ipc=host"};
  }
  return Status::ok();
}

Result<std::unique_ptr<DescriptorClient>> DescriptorClient::connect(const JobKey& key,
                                                                    const HandoverPlace& place,
                                                                    const std::string& folder) {
  DUNLIN_TRY(check_place(place, folder));
  DUNLIN_ASSIGN(const SocketAddress address,
                make_socket_address(place.name, place.is_in_folder ? folder : ""));
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + kHandoverTime;
  for (;;) {
    auto socket = attempt(key, place.name, address, deadline);
    if (socket) {
      return std::unique_ptr<DescriptorClient>(new DescriptorClient(std::move(socket).value()));
    }
    const bool is_late = clock.now() >= deadline;
    if (!is_crowded(socket.status()) || is_late) {
      Status why = std::move(socket).status();
      if (why.is_busy()) why = {Code::kDeadlineExceeded, "its queue of connections stays full"};
      return std::move(why).with_context(
          place.is_in_folder ? fmt::format("the peer's socket in DUNLIN_SHM_DIR={}", folder)
                             : std::string("the peer's socket"));
    }
    std::this_thread::sleep_for(kHandoverRetry);
  }
}

Result<Fd> DescriptorClient::attempt(const JobKey& key, const std::string& name,
                                     const SocketAddress& address, TimePoint deadline) {
  Fd made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.is_open()) return Status::from_errno("socket(AF_UNIX)", errno);
  if (::connect(made.get(), address.get(), address.size) != 0) {
    switch (errno) {
      case EAGAIN:
        return Status::busy();
      case ENOENT:
        return Status(
            Code::kUnavailable,
            "it is not there: DUNLIN_SHM_DIR must name the same folder in all containers");
      case ECONNREFUSED:
        return Status(Code::kUnavailable, "nobody listens there; has the peer ended?");
      default:
        return Status::from_errno("connect", errno);
    }
  }
  DUNLIN_TRY(check_user(made.get()));
  Challenge challenge;
  DUNLIN_TRY(await(made.get(), challenge, deadline));
  Response response{.nonce = bootstrap::random_nonce()};
  response.proof = prove(key, {HandoverRole::kPeer, name, challenge.nonce, response.nonce});
  DUNLIN_TRY(send_message(made.get(), response));
  Acceptance acceptance;
  DUNLIN_TRY(await(made.get(), acceptance, deadline));
  if (!proves(acceptance.proof, key, {HandoverRole::kOwner, name, challenge.nonce, response.nonce}))
    return Status(Code::kPermissionDenied, "a stranger listens there");
  return made;
}

Result<Fd> DescriptorClient::fetch(OfferKey key) {
  if (!socket_.is_open())
    return Status(Code::kClosed, "the connection by which the peer passes descriptors has failed");
  OfferReply reply;
  Fd descriptor;
  Status status = send_message(socket_.get(), OfferRequest{.key = key});
  if (status)
    status = await(socket_.get(), reply, SteadyClock().now() + kHandoverTime, &descriptor);
  if (!status) {
    socket_.reset();  // a late answer must not be taken for that to another request
    return std::move(status).with_context("asking the peer for a descriptor");
  }
  if (reply.is_given == 0) return Status(Code::kNotFound, "the peer offers no such descriptor");
  if (!descriptor.is_open()) {
    return Status(Code::kResourceExhausted,
                  "no descriptor came with the peer's answer: this process may have no more");
  }
  return descriptor;
}

}  // namespace dunlin::transport::shm
