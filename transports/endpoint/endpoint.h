// Endpoint: communication with peers that come and go, without a job.
//
// The ranks of a job know one another from the start. An endpoint knows nobody. It has a blob of at
// most 128 bytes, an address and a key, which the program passes to others in any way it likes. A
// process that has the blob can connect. A connection offers what a link between two ranks offers:
// the lanes of the best transport between the two processes, and access to memory that the peer has
// registered. It also carries messages of any size.
//
//     auto endpoint = Endpoint::create(config, clock, {});
//     send_somehow(endpoint->blob());                      // at the side that waits
//     auto connection = endpoint->connect(blob, greeting); // at the side that connects
//     auto connection = endpoint->accept();                // and at the other, when it has arrived
//
// Authentication: the blob is a secret. Both sides prove that they know its key, and what travels
// over tcp is encrypted with a key of this connection. Nobody without the blob gets further than
// the handshake.
//
// Threads: an endpoint, its connections and their lanes have one owner thread, or are used under
// one lock. A service thread, which the endpoint starts, authenticates peers, passes on what
// connections agree on, and watches for the ends of peers. It never touches memory that is
// registered. Calls return kBusy rather than block, and the program calls progress() and tries
// again. But while a connection is being made, progress() waits for answers of the two service
// threads: microseconds, and up to some seconds if the peer's process is stopped just then.
//
// Inside, a connection is a job of two ranks with a fabric of its own. So every transport works
// here as it does in jobs. The price is that memory is registered once per connection that uses
// it: over verbs, each of them has a protection domain of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/gpu/driver.h"
#include "runtime/memory/region.h"
#include "runtime/status.h"
#include "runtime/wait.h"
#include "transports/endpoint/connection.h"

namespace dunlin::transport {

class Endpoint final : public Progressor {
 public:
  struct Options {
    // Listens on the loopback interface only, so that no other host can connect.
    bool is_host_only = false;
    // Opaque bytes that peers that connect to this endpoint receive, such as a name.
    Bytes greeting{};
  };
  // The largest blob, and the largest greeting.
  static constexpr std::size_t kMaxBlob = 128;
  static constexpr std::size_t kMaxGreeting = 4096;

  // Listens on a free port. `config` and `clock` must outlive the endpoint. config.transports are
  // the transports that connections may use; config.tcp_interface is the interface to listen on.
  static Result<std::unique_ptr<Endpoint>> create(const Config& config, const Clock& clock,
                                                  Options options);
  // All connections must have been destroyed before.
  ~Endpoint() override;

  // What peers need to connect to this endpoint. A secret.
  const Bytes& blob() const { return blob_; }

  // Begins to connect to the endpoint with this blob, which may be of this process, and may be this
  // endpoint. `greeting` is for the peer. The result is not usable before its status() is ok.
  // `transports`, unless empty, are used instead of those of the configuration. kCorrupted if the
  // bytes are not a blob of this version.
  Result<std::unique_ptr<Connection>> connect(std::span<const std::byte> blob, Bytes greeting,
                                              std::vector<std::string> transports = {});
  // Returns a connection that a peer has begun; null if there is none. Its greeting() is not known
  // before its status() is ok.
  std::unique_ptr<Connection> accept();

  // Lets peers access `memory`, as far as the transport that connects them can. The memory must
  // live until deregister(). Returns the number by which peers import it, unique in this endpoint.
  Result<MemoryId> register_memory(std::shared_ptr<MemoryRegion> memory);
  // The same for memory of the program. `gpu`: the driver of the GPU whose memory it has to be;
  // null: it is the host's. kInvalidArgument for host memory with a driver.
  Result<MemoryId> register_memory(void* data, std::size_t size, std::shared_ptr<GpuDriver> gpu);
  // Peers must not access the memory any more. What they still post fails. What is on its way may
  // land in the memory: use it for something else only when peers are done. kNotFound if the number
  // is not registered.
  Status deregister(MemoryId id);

  // Advances all connections. Returns how many events it handled.
  std::size_t progress() override;
  bool arm() override;
  void disarm() override;
  const std::vector<int>& wait_fds() const override;
  // Calls progress() until ready() returns something other than kBusy, and returns that.
  // kDeadlineExceeded after the timeout. Sleeps while nothing arrives.
  template <typename Ready>
  Status wait(Ready&& ready, Duration timeout) {
    return waiter_.until(ready, clock_.now() + timeout);
  }

 private:
  friend Connection;
  Endpoint(const Config& config, const Clock& clock, Options options);
  std::unique_ptr<Connection> adopt(std::unique_ptr<Connection> connection);
  void forget(Connection& connection);

  const Config& config_;
  const Clock& clock_;
  Bytes greeting_;
  Bytes blob_;
  std::unique_ptr<endpoint::ControlService> service_;
  endpoint::Registry registry_;
  std::uint64_t last_memory_ = 0;
  std::vector<Connection*> connections_;
  mutable std::vector<int> wait_fds_;
  Waiter waiter_;
};

}  // namespace dunlin::transport
