// Endpoint: what the engine dispatches to: one end of one RC connection.
//
// A lane is carried by a connection of its own, made by whoever sends: Outbound at the sender,
// Inbound at the receiver. So two processes that connect to one another at the same moment have
// nothing to agree on, a rank reaches itself like any other, and a lane that breaks takes nothing
// with it, not even its counterpart in the other direction.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dunlin::transport::verbs {

// An event of the connection manager, copied so that it could be acknowledged.
struct CmEvent {
  rdma_cm_event_type type;
  int status;
  std::uint8_t reads;  // that the other end means to have on the way
  std::vector<std::byte> private_data;
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void on_event(const CmEvent& event) = 0;
  virtual void on_completion(const ibv_wc& completion) = 0;
};

}  // namespace dunlin::transport::verbs
