#include "transports/shm/handover.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "runtime/bytes.h"

namespace dunlin::transport::shm {
namespace {

// What the kernel gives for a user that has no id in the user namespace of the reader.
uid_t overflow_user() {
  uid_t user = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> user;
  return user;
}

// Room for one descriptor.
union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

}  // namespace

std::uint64_t this_network_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/net", &info) == 0 ? info.st_ino : 0;
}

Result<SocketAddress> make_socket_address(const std::string& name, const std::string& folder) {
  SocketAddress address;
  address.bytes.sun_family = AF_UNIX;
  const bool is_abstract = folder.empty();
  // The path of an abstract socket begins with a zero, and any other ends in one.
  const std::string path = is_abstract ? std::string(1, '\0') + name : folder + '/' + name;
  const std::size_t size = path.size() + (is_abstract ? 0 : 1);
  if (size > sizeof address.bytes.sun_path) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("DUNLIN_SHM_DIR has {} bytes, and the path of a Unix socket in it may "
                    "have {}: give a shorter path, such as a symbolic link",
                    folder.size(), sizeof address.bytes.sun_path - 1));
  }
  std::memcpy(address.bytes.sun_path, path.data(), path.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size);
  return address;
}

bootstrap::Proof prove(const JobKey& key, const HandoverClaims& claims) {
  ByteWriter text;
  text.text("dunlin shm handover")
      .number(static_cast<std::uint8_t>(claims.role))
      .blob(claims.owner)
      .blob(claims.peer)
      .text(claims.socket);
  return bootstrap::sign(key, text.take());
}

bool proves(const bootstrap::Proof& proof, const JobKey& key, const HandoverClaims& claims) {
  return bootstrap::equals(proof, prove(key, claims));
}

Status check_user(int socket) {
  ucred other{};
  socklen_t size = sizeof other;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &size) != 0)
    return Status::from_errno("SO_PEERCRED", errno);
  static const uid_t kUnknown = overflow_user();
  if (other.uid == geteuid() || other.uid == kUnknown) return Status::ok();
  return {Code::kUnavailable,
          fmt::format("it belongs to user {}, and this process to user {}", other.uid, geteuid())};
}

Status send_message(int socket, std::span<const std::byte> message, int descriptor) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  Control control{};
  if (descriptor >= 0) {
    header.msg_control = &control;
    header.msg_controllen = sizeof control.bytes;
    cmsghdr* const passed = CMSG_FIRSTHDR(&header);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(passed), &descriptor, sizeof descriptor);
  }
  if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    return Status::from_errno("sendmsg", errno);
  return Status::ok();
}

Status receive_message(int socket, std::span<std::byte> message, Fd* descriptor) {
  iovec part{message.data(), message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  Control control{};
  if (descriptor != nullptr) {
    // Without the padding behind one descriptor, in which a second one would fit.
    header.msg_control = &control;
    header.msg_controllen = CMSG_LEN(sizeof(int));
  }
  const ssize_t size = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return Status::busy();
  if (size < 0) return Status::from_errno("recvmsg", errno);
  if (const cmsghdr* const passed = CMSG_FIRSTHDR(&header);
      passed != nullptr && passed->cmsg_level == SOL_SOCKET && passed->cmsg_type == SCM_RIGHTS) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(passed), sizeof number);
    *descriptor = Fd(number);
  }
  if (size == 0) return {Code::kClosed, "the other end has closed the connection"};
  if (static_cast<std::size_t>(size) != message.size() || (header.msg_flags & MSG_TRUNC) != 0)
    return {Code::kCorrupted, fmt::format("a message of {} bytes, not {}", size, message.size())};
  return Status::ok();
}

}  // namespace dunlin::transport::shm
