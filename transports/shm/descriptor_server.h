// DescriptorServer: hands descriptors of this process to peers of its job that run in other PID
// namespaces of the host (handover.h). The peer asks for an offer by its key. Nothing else can be
// had, and a stranger gets nothing.
//
// A thread serves the peers, so that they need not wait for this process's progress. It works only
// when a peer connects or imports a region; no message depends on it. A process has a server only
// if its job has ranks in other PID namespaces of its host.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/paced_log.h"
#include "runtime/fd.h"
#include "runtime/status.h"
#include "transports/shm/handover.h"

namespace dunlin::transport::shm {

class DescriptorServer {
 public:
  // Listens at an abstract socket, or, if `folder` is not empty, at one in this folder. Removes the
  // sockets of processes that were killed from the folder. kUnavailable says what is missing here.
  static Result<std::unique_ptr<DescriptorServer>> create(const JobKey& key,
                                                          const std::string& folder);
  // Ends the thread, and removes the socket from the folder.
  ~DescriptorServer();
  DescriptorServer(const DescriptorServer&) = delete;
  DescriptorServer& operator=(const DescriptorServer&) = delete;

  // For the address of this process.
  HandoverPlace place() const { return {name_, !folder_.empty(), this_network_namespace(), ""}; }
  // Peers may have this descriptor, which stays the caller's, until withdraw(). When that returns,
  // the server does not use it any more. A later offer of the same key is ignored. Any thread.
  void offer(OfferKey key, int descriptor);
  void withdraw(OfferKey key);
  // Lets peers access all memory of this process (kMemoryOffer). Does it once. Any thread.
  void offer_process_memory();

 private:
  struct Connection {
    Fd socket;
    bootstrap::Nonce nonce;
    bool is_member = false;  // has proven that it belongs to the job
    bool has_ended = false;
  };

  DescriptorServer(const JobKey& key, std::string folder, std::string name, Fd listener, Fd wake);
  Status offer_process();
  void run();
  void accept_connections();
  void make_room();
  void serve(Connection& connection);
  Status authenticate(Connection& connection);
  Status answer(const Connection& connection);
  void write_log();

  const JobKey key_;
  const std::string folder_;
  const std::string name_;
  const Fd listener_;
  const Fd wake_;  // an eventfd that ends the thread
  Fd process_;     // a pidfd
  Fd memory_;      // under mutex_: /proc/self/mem

  std::mutex mutex_;
  std::map<OfferKey, int> offers_;  // under mutex_

  // Used by the thread only:
  std::vector<Connection> connections_;  // by arrival
  bool has_descriptors_ = true;          // false: the process has no more for new connections
  bootstrap::PacedLog refusals_{"connections refused"};
  std::thread thread_;
};

}  // namespace dunlin::transport::shm
