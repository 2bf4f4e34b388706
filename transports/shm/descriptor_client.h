// DescriptorClient: a connection to the descriptor server of a peer in another PID namespace of
// this host (descriptor_server.h), by which this process gets the peer's descriptors. Owner thread
// only.
#pragma once

#include <memory>
#include <string>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/clock.h"
#include "runtime/fd.h"
#include "runtime/status.h"
#include "transports/shm/handover.h"

namespace dunlin::transport::shm {

// Whether a process that listens at `place` can be reached from here: `folder` is this process's
// DUNLIN_SHM_DIR. kUnavailable says what the two lack, and what to do. Sends nothing.
Status check_place(const HandoverPlace& place, const std::string& folder);

class DescriptorClient {
 public:
  // Connects, and has each end prove to the other that it knows the job's key. Blocks for
  // kHandoverTime at most. kUnavailable if nobody listens there.
  static Result<std::unique_ptr<DescriptorClient>> connect(const JobKey& key,
                                                           const HandoverPlace& place,
                                                           const std::string& folder);
  // Returns the descriptor that the peer offers under this key. kNotFound if it offers none.
  Result<Fd> fetch(OfferKey key);

 private:
  explicit DescriptorClient(Fd socket) : socket_(std::move(socket)) {}
  static Result<Fd> attempt(const JobKey& key, const std::string& name,
                            const SocketAddress& address, TimePoint deadline);

  Fd socket_;  // closed after a failure
};

}  // namespace dunlin::transport::shm
