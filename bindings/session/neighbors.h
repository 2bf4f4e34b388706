// Neighbors: averages with neighbors and gathers from them, by a NeighborExchange
// (collectives/neighbor/neighbor_exchange.h) of the session.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/session/session.h"
#include "collectives/neighbor/neighbor_exchange.h"

namespace dunlin::binding {

// The result of a gather.
class NeighborGather {
 public:
  virtual ~NeighborGather() = default;
  // The data of each source, in the order of the call's sources; once the operation is over.
  virtual std::vector<Bytes>& parts() = 0;
  // The sources, in the same order.
  virtual std::vector<Rank> sources() const = 0;
};

// Threads: any. Operations continue until they are over, also if the wait for them has timed out.
// The session has to outlive it.
class Neighbors {
 public:
  // `name` and `gpu`: as in NeighborOptions.
  static Result<std::shared_ptr<Neighbors>> create(Session& session, std::string name,
                                                   std::optional<int> gpu = {});

  // See NeighborExchange::start() and start_gather(). Input and output belong to the operation
  // until it is over; name and neighbors are copied. `when_over` goes to
  // SessionOperation::when_over(). A gather without destinations can be withdrawn
  // (SessionOperation::withdraw()); `missed` says what becomes of its messages then.
  Result<std::shared_ptr<SessionOperation>> start(const collective::NeighborCall& call);
  struct Gathering {
    std::shared_ptr<SessionOperation> operation;
    std::shared_ptr<NeighborGather> result;  // the same object
  };
  Result<Gathering> start_gather(const collective::NeighborCall& call,
                                 std::function<void()> when_over = {},
                                 collective::Missed missed = collective::Missed::kDropped);
  // Gathers from one of the sources: the first that has sent under this name. If several have, it
  // is the next in the list after the one that was taken last. Gathers of one name take messages in
  // the order in which they were started. It fails with kPeerDead when all sources are dead. If it
  // is withdrawn before a message has come, that message is for the next gather.
  Result<Gathering> start_gather_any(const collective::NeighborCall& call,
                                     std::function<void()> when_over = {});

  // start(), then waits for Config::deadline at most. `unfinished`: as for Session::run().
  Status average(const collective::NeighborCall& call, const Session::Interrupt& interrupt,
                 std::shared_ptr<SessionOperation>* unfinished);

 private:
  class Exchange;
  class Average;
  class Gather;
  class AnyGather;
  Neighbors(Session& session, std::shared_ptr<Exchange> exchange)
      : session_(session), exchange_(std::move(exchange)) {}

  Session& session_;
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace dunlin::binding
