// Endpoint and Connection: communication with processes that come and go, without a job. For
// programs whose processes no launcher starts together: servers and their clients, and plugins.
//
//   DUNLIN_ASSIGN(auto endpoint, dunlin::Endpoint::open());
//   send_somehow(endpoint.blob());                                  // the side that waits
//   DUNLIN_ASSIGN(auto connection, endpoint.accept(timeout));
//
//   DUNLIN_ASSIGN(auto connection, endpoint.connect(blob, timeout));  // the side that connects
//   DUNLIN_ASSIGN(auto memory, endpoint.wrap(data, size));
//   DUNLIN_ASSIGN(auto theirs, connection.remote(number, timeout));
//   DUNLIN_TRY(connection.put(connection.local(memory).value(), theirs, &done));
//   DUNLIN_TRY(connection.send(text));                              // arrives behind the put
//
// A process that has the blob of an endpoint, at most 128 bytes, can connect to it: the blob
// contains a key, and is a secret. Both sides of a connection prove that they know it.
//
// Threads: an endpoint and its connections belong to one thread at a time, as a job does. Progress
// happens inside calls: a side that does something else for long calls progress() now and then.
// Connections keep what they need of the endpoint alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <dunlin/lane.h>
#include <dunlin/memory.h>

namespace dunlin {

struct EndpointState;

struct EndpointOptions {
  // Settings that replace those of the environment, by name, as of a job.
  std::map<std::string, std::string> settings{};
  // Only processes of this host can connect.
  bool is_host_only = false;
  // What peers that connect to this endpoint are told of it, at most 4,096 bytes.
  Bytes greeting{};
};

// Memory that an endpoint has registered. Peers import it by its number, which the program passes
// to them, for example in a message.
struct EndpointMemory {
  std::uint64_t number = 0;
  std::byte* data = nullptr;
  std::size_t size = 0;
};

// One end of a connection. It ends when either side destroys its end, when the peer's process ends,
// or when the network fails for longer than the transport can bridge. Then all operations fail with
// the reason, kPeerDead or kClosed; other connections are not affected.
class Connection {
 public:
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;
  // Waits for up to a second until the peer has the messages that were sent; then the transports
  // end, which takes up to 7 s if the peer makes no progress. Does not wait for puts: flush before.
  ~Connection();

  // Ok while the connection is usable, then why it has ended.
  Status status() const;
  // What the peer says of itself.
  const Bytes& greeting() const;
  // The name of the transport that is used.
  std::string transport() const;

  // Memory of the own endpoint, as the local end of operations of this connection.
  Result<MemorySlice> local(const EndpointMemory& memory);
  // The peer's memory with this number. kNotFound if the peer has not registered it.
  Result<RemoteMemorySlice> remote(std::uint64_t number, Duration timeout);
  // Forgets the peer's memory with this number, which no operation in progress may use. Until then,
  // memory of this host stays mapped here, also when the peer has deregistered it.
  void forget(std::uint64_t number);

  // As Lane's operations, in the same order and with the same errors.
  Status put(const MemorySlice& from, const RemoteMemorySlice& to, Completion* completion);
  Status get(const RemoteMemorySlice& from, const MemorySlice& to, Completion* completion);
  Status flush(Visibility visibility, Completion* completion);
  // Waits until the completion has fired, and returns its status.
  Status wait(const Completion& completion, Duration timeout);

  // Sends a copy of a message of at most 16 MiB. The peer receives it behind everything that was
  // put before, and behind earlier messages. kBusy while too much waits to be sent.
  Status send(std::span<const std::byte> message);
  // The next message, if one has arrived.
  std::optional<Bytes> receive();
  // Waits for the next message. The reason of the connection's end if none can come any more.
  Result<Bytes> receive(Duration timeout);

 private:
  friend class Endpoint;
  struct Impl;
  explicit Connection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Endpoint {
 public:
  // Listens on a free port, on the interface DUNLIN_TCP_INTERFACE or on all of them.
  static Result<Endpoint> open(const EndpointOptions& options = {});

  Endpoint(Endpoint&&) noexcept;
  Endpoint& operator=(Endpoint&&) noexcept;
  ~Endpoint();

  // What peers need to connect to this endpoint. A secret.
  const Bytes& blob() const;

  // Connects to the endpoint with this blob. The peer has to make progress. `greeting`, of at most
  // 4,096 bytes, is for the peer. kCorrupted if the bytes are no blob of this version.
  Result<Connection> connect(std::span<const std::byte> blob, Duration timeout,
                             Bytes greeting = {});
  // Waits for the next connection that a peer makes. kDeadlineExceeded if none comes. The peer may
  // have sent messages and ended by now; receive() still returns these.
  Result<Connection> accept(Duration timeout);

  // Allocates memory that peers can access.
  Result<EndpointMemory> allocate(std::size_t size);
  // Lets peers access the caller's memory, which must live until it is deregistered and peers are
  // done with it. Peers on this host access it by system calls, if the kernel permits it.
  Result<EndpointMemory> wrap(void* data, std::size_t size);
  // Peers must not access the memory any more. What they have started may still land in wrapped
  // memory. Memory that was allocated is freed when it is safe.
  Status deregister(const EndpointMemory& memory);

  // Advances all connections, and returns how many events it handled.
  std::size_t progress();

 private:
  explicit Endpoint(std::shared_ptr<EndpointState> state);
  std::shared_ptr<EndpointState> state_;
};

}  // namespace dunlin
