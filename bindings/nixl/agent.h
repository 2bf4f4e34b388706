// Agent: Dunlin's side of one NIXL agent: an endpoint, the memory that the agent has registered,
// and the agents that it has been told of. Independent of NIXL's headers.
//
// Threads: any thread may call any function; a lock orders them. With a progress thread, transfers
// and peers advance by themselves. Without one, they advance in check(), take_notifications() and
// whatever else is called, and a keeper (transports/endpoint/keeper.h) delivers what is left when
// nothing is called any more.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/nixl/farewells.h"
#include "bindings/nixl/memory.h"
#include "bindings/nixl/peer.h"
#include "bindings/nixl/transfer.h"
#include "runtime/config.h"
#include "runtime/gpu/driver.h"
#include "transports/endpoint/keeper.h"

namespace dunlin::nixl {

struct AgentOptions {
  std::string name;
  bool has_progress_thread = false;
  Duration progress_interval{};  // how often the thread looks at a peer that may want something
};

// One row of a list of descriptors, whose addresses are at the two sides.
struct Row {
  const LocalMemory* local = nullptr;
  std::byte* local_address = nullptr;
  const RemoteMemory* remote = nullptr;
  std::byte* remote_address = nullptr;
  std::size_t size = 0;
};

class Agent {
 public:
  static Result<std::unique_ptr<Agent>> create(Config config, AgentOptions options);
  ~Agent();

  const std::string& name() const { return name_; }
  // What other agents need to connect to this one.
  const Bytes& blob() const { return endpoint_->blob(); }

  Result<LocalMemory> register_memory(void* data, std::size_t size, bool is_on_gpu);
  // kAlreadyExists while a transfer that is in progress uses it.
  Status deregister(const LocalMemory& memory);

  // Makes an agent known, or tells that it listens elsewhere now. kCorrupted if the blob is none.
  Status add_peer(const std::string& name, std::span<const std::byte> blob);
  // kNotFound for agents that are not known.
  Status connect(const std::string& peer);
  Status disconnect(const std::string& peer);

  // Prepares a transfer. kOutOfRange if a row does not lie within its memory, kInvalidArgument if
  // it belongs to another agent.
  Result<std::unique_ptr<Transfer>> prepare(Direction direction, const std::string& peer,
                                            std::span<const Row> rows);
  // kAlreadyExists while the transfer is in progress; then as check().
  Status start(Transfer& transfer, std::optional<std::string> notification);
  // kBusy while it is in progress.
  Status check(Transfer& transfer);
  // Forgets a peer's memory, once no transfer in progress uses it.
  void forget(const RemoteMemory& memory);
  // Stops a transfer that is in progress, and destroys it. When it returns, the memory of both
  // sides is not accessed any more on its behalf. It waits for that, while other calls go on.
  void release(std::unique_ptr<Transfer> transfer);
  Result<CostEstimate> estimate(const std::string& peer);

  Status notify(const std::string& peer, std::string text);
  // The notifications that have arrived, with the names of their senders.
  std::vector<std::pair<std::string, std::string>> take_notifications();

 private:
  Agent(Config config, AgentOptions options);
  Result<std::shared_ptr<Peer>> find(const std::string& name);
  // Advances everything. Returns how many events there were.
  std::size_t progress();
  // Takes the guest's notifications, as far as there is room. Returns whether all were taken.
  bool take_from(transport::Connection& guest);
  // Returns how many are done.
  std::size_t advance_transfers();
  void forget_unloaded();
  void run_progress_thread();

  const Config config_;
  const std::string name_;
  const AgentOptions options_;
  SteadyClock clock_;
  std::shared_ptr<GpuDriver> gpu_;  // loaded with the first GPU memory

  std::mutex mutex_;  // guards all members below
  std::unique_ptr<transport::Endpoint> endpoint_;
  Farewells farewells_;
  std::map<std::string, std::shared_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<transport::Connection>> guests_;  // connections that peers have made
  std::vector<std::pair<std::string, std::string>> notifications_;
  std::size_t notification_bytes_ = 0;
  std::vector<Transfer*> active_;
  bool is_stopping_ = false;

  std::thread thread_;                                   // with a progress thread
  std::unique_ptr<transport::endpoint::Keeper> keeper_;  // without one
};

}  // namespace dunlin::nixl
