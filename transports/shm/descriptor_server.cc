#include "transports/shm/descriptor_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "transports/shm/constants.h"

namespace dunlin::transport::shm {
namespace {

constexpr std::string_view kNamePrefix = "dunlin-shm-";
// A socket has this prefix until it listens, so that nobody takes it for a dead one.
constexpr std::string_view kNewPrefix = "dunlin-new-";
constexpr std::size_t kNameBytes = 12;

Result<Fd> make_socket() {
  Fd made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.is_open()) return Status::from_errno("socket(AF_UNIX)", errno);
  return made;
}

// Removes the sockets at which nobody listens any more, as their processes were killed.
void remove_dead_sockets(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kNamePrefix) || !entry.is_socket(error)) continue;
    const auto address = make_socket_address(name, folder);
    const auto probe = make_socket();
    if (!address || !probe) continue;
    if (connect(probe->get(), address->get(), address->size) != 0 && errno == ECONNREFUSED)
      std::filesystem::remove(entry.path(), error);
  }
}

Status bind_at(const Fd& socket, const std::string& name, const std::string& folder) {
  DUNLIN_ASSIGN(const SocketAddress address, make_socket_address(name, folder));
  if (bind(socket.get(), address.get(), address.size) == 0) return Status::ok();
  return Status::from_errno(folder.empty() ? "binding an abstract Unix socket"
                                           : "making a socket in DUNLIN_SHM_DIR=" + folder,
                            errno);
}

Result<Fd> listen_at(const std::string& random, const std::string& folder) {
  DUNLIN_ASSIGN(Fd socket, make_socket());
  const std::string name = std::string(kNamePrefix) + random;
  const std::string draft = folder.empty() ? name : std::string(kNewPrefix) + random;
  // The mode of the file that bind() makes. No name that exists is ever taken over or followed.
  if (!folder.empty() && fchmod(socket.get(), S_IRUSR | S_IWUSR) != 0)
    return Status::from_errno("fchmod of a socket", errno);
  DUNLIN_TRY(bind_at(socket, draft, folder));
  if (listen(socket.get(), kHandoverBacklog) != 0) return Status::from_errno("listen", errno);
  if (!folder.empty() && rename((folder + '/' + draft).c_str(), (folder + '/' + name).c_str()) != 0)
    return Status::from_errno("renaming a socket in DUNLIN_SHM_DIR=" + folder, errno);
  return socket;
}

}  // namespace

Result<std::unique_ptr<DescriptorServer>> DescriptorServer::create(const JobKey& key,
                                                                   const std::string& folder) {
  if (!folder.empty()) remove_dead_sockets(folder);
  const std::string random = bootstrap::random_hex(kNameBytes);
  Fd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.is_open()) return Status::from_errno("eventfd", errno);
  DUNLIN_ASSIGN(Fd listener, listen_at(random, folder));
  std::unique_ptr<DescriptorServer> server(new DescriptorServer(
      key, folder, std::string(kNamePrefix) + random, std::move(listener), std::move(wake)));
  DUNLIN_TRY(server->offer_process());
  DUNLIN_ASSIGN(server->thread_, bootstrap::start_service_thread(
                                     "dunlin-handover", [made = server.get()] { made->run(); }));
  return server;
}

DescriptorServer::DescriptorServer(const JobKey& key, std::string folder, std::string name,
                                   Fd listener, Fd wake)
    : key_(key),
      folder_(std::move(folder)),
      name_(std::move(name)),
      listener_(std::move(listener)),
      wake_(std::move(wake)) {}

DescriptorServer::~DescriptorServer() {
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
  if (!folder_.empty()) unlink((folder_ + '/' + name_).c_str());
}

Status DescriptorServer::offer_process() {
  process_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!process_.is_open()) {
    return {Code::kUnavailable,
            fmt::format("{}: peers in other PID namespaces could not see the end of this process; "
                        "it needs a kernel of 5.3 or newer, and a seccomp profile that permits it",
                        Status::from_errno("pidfd_open", errno).message())};
  }
  offer(kProcessOffer, process_.get());
  return Status::ok();
}

void DescriptorServer::offer(OfferKey key, int descriptor) {
  const std::lock_guard lock(mutex_);
  offers_.emplace(key, descriptor);
}

void DescriptorServer::withdraw(OfferKey key) {
  const std::lock_guard lock(mutex_);
  offers_.erase(key);
}

void DescriptorServer::offer_process_memory() {
  const std::lock_guard lock(mutex_);
  if (memory_.is_open()) return;
  memory_ = Fd(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  if (memory_.is_open()) offers_.emplace(kMemoryOffer, memory_.get());
}

void DescriptorServer::run() {
  std::vector<pollfd> entries;
  for (;;) {
    entries.assign(
        {{wake_.get(), POLLIN, 0}, {has_descriptors_ ? listener_.get() : -1, POLLIN, 0}});
    for (const Connection& each : connections_) entries.push_back({each.socket.get(), POLLIN, 0});
    // Without descriptors, it tries again: nothing tells when the process has closed some.
    const bool has_news = refusals_.next() != TimePoint::max();
    const int pause_ms = has_descriptors_ && !has_news ? -1 : kHandoverPauseMs;
    if (poll(entries.data(), entries.size(), pause_ms) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (entries[2 + i].revents != 0) serve(connections_[i]);
    }
    std::erase_if(connections_, [](const Connection& each) { return each.has_ended; });
    accept_connections();
    write_log();
  }
}

void DescriptorServer::accept_connections() {
  has_descriptors_ = true;
  for (;;) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) {
      has_descriptors_ = errno != EMFILE && errno != ENFILE;
      return;
    }
    if (const Status user = check_user(socket.get()); !user) {
      refusals_.note(std::string(user.message()));
      continue;
    }
    const Challenge challenge{.nonce = bootstrap::random_nonce()};
    if (!send_message(socket.get(), challenge)) continue;
    make_room();
    connections_.push_back({std::move(socket), challenge.nonce});
  }
}

// Strangers cannot keep members away: the connection that has waited for longest gives way. A
// member's takes microseconds, and is made again.
void DescriptorServer::make_room() {
  const auto is_guest = [](const Connection& each) { return !each.is_member; };
  if (std::ranges::count_if(connections_, is_guest) < kMostHandoverGuests) return;
  connections_.erase(std::ranges::find_if(connections_, is_guest));
}

void DescriptorServer::serve(Connection& connection) {
  Status status = connection.is_member ? answer(connection) : authenticate(connection);
  if (status.is_ok() || status.is_busy()) return;
  connection.has_ended = true;
  if (!connection.is_member) refusals_.note(std::string(status.message()));
}

Status DescriptorServer::authenticate(Connection& connection) {
  Response response;
  DUNLIN_TRY(receive_message(connection.socket.get(), response));
  if (!proves(response.proof, key_, {HandoverRole::kPeer, name_, connection.nonce, response.nonce}))
    return {Code::kPermissionDenied, "it does not know the key of this job"};
  connection.is_member = true;
  const Acceptance acceptance{
      .proof = prove(key_, {HandoverRole::kOwner, name_, connection.nonce, response.nonce})};
  return send_message(connection.socket.get(), acceptance);
}

Status DescriptorServer::answer(const Connection& connection) {
  OfferRequest request;
  DUNLIN_TRY(receive_message(connection.socket.get(), request));
  const std::lock_guard lock(mutex_);
  const auto found = offers_.find(request.key);
  const bool is_given = found != offers_.end();
  return send_message(connection.socket.get(), OfferReply{.is_given = is_given ? 1u : 0u},
                      is_given ? found->second : -1);
}

void DescriptorServer::write_log() {
  if (const auto line = refusals_.take(SteadyClock().now()))
    DUNLIN_WARN("shm: a process that connected for shared memory was refused: {}", *line);
}

}  // namespace dunlin::transport::shm
