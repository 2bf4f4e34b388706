// Peer: what an agent knows of another agent, and its connection to it.
//
// The connection is made at the first use, and again when it has ended and is used once more. A
// connection that is not used any more goes to the agent's farewells. All functions are called
// under the agent's lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bindings/nixl/farewells.h"
#include "runtime/bytes.h"
#include "transports/endpoint/endpoint.h"

namespace dunlin::nixl {

// How long transfers take, learned from those that are done.
struct CostEstimate {
  Duration latency = std::chrono::microseconds(20);  // of small ones
  double bytes_per_s = 2e9;
};

class Peer {
 public:
  // The references must outlive the object. `own_name` greets the peer.
  Peer(transport::Endpoint& endpoint, Farewells& farewells, const Clock& clock,
       const Config& config, std::string own_name, std::string name, Bytes blob);

  const std::string& name() const { return name_; }
  // Where the peer listens from now on.
  void set_blob(Bytes blob);

  // Begins to connect, unless there is a connection that has not ended, or the peer was removed.
  void connect();
  // Ends the connection. What is in progress over it, and over a former one, fails unless it is
  // done within a second.
  void disconnect();
  // The agent has forgotten the peer: ends the connection for good.
  void remove();
  // kBusy until there is a connection; then ok, or why there is none.
  Status status();
  // Usable if status() is ok. Null while there is none.
  std::shared_ptr<transport::Connection> connection() const { return connection_; }
  // Changes with each connection, and with forget_memory().
  std::uint64_t epoch() const { return epoch_; }
  // Changes with disconnect(), so that a transfer notices that it must not go on.
  std::uint64_t disconnections() const { return disconnections_; }
  // As Connection::remote(). If the peer's memory cannot be reached over shared memory, it connects
  // again over the other transports, and returns kBusy. Transfers that are in progress go on over
  // the connection that they have.
  Result<transport::RemoteRegion*> remote(transport::MemoryId id);
  // Slices of memory that were looked up before must not be used any more.
  void forget_memory() { ++epoch_; }
  // Forgets the peer's memory with this number, which no transfer in progress uses.
  void forget_memory(transport::MemoryId id);

  // Sends a notification as soon as there is a connection.
  void notify(std::string text);
  // Sends the notifications that wait, if any. kBusy while some do, or while those of a former
  // connection have not arrived.
  Status send_waiting();
  void progress();
  // The peer's memory with this number is not needed any more.
  void unload(transport::MemoryId id) { unloaded_.push_back(id); }
  // Memory that was unloaded, and has not been forgotten yet.
  std::vector<transport::MemoryId>& unloaded() { return unloaded_; }

  TimePoint now() const { return clock_.now(); }
  // A transfer of so many bytes has taken so long.
  void note(std::size_t bytes, Duration time);
  const CostEstimate& cost() const { return cost_; }

 private:
  void drop_connection();

  transport::Endpoint& endpoint_;
  Farewells& farewells_;
  const Clock& clock_;
  std::vector<std::string> transports_;
  const std::string own_name_;
  const std::string name_;
  Bytes blob_;
  std::shared_ptr<transport::Connection> connection_;
  Status failure_;  // of connect()
  bool is_removed_ = false;
  std::uint64_t epoch_ = 1;
  std::uint64_t disconnections_ = 0;
  std::weak_ptr<transport::Connection> former_;  // before the fallback, until it has ended
  std::deque<std::string> waiting_;              // notifications
  std::vector<transport::MemoryId> unloaded_;
  CostEstimate cost_;
};

}  // namespace dunlin::nixl
