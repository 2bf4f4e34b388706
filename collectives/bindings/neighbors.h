// Neighbors: a NeighborExchange (neighbor_exchange.h) of the process, for all that its programs
// average with and gather from neighbours.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/bindings/runtime.h"
#include "collectives/neighbor/neighbor_exchange.h"

namespace dunlin::binding {

// What a gather is over with.
class NeighborGather {
 public:
  virtual ~NeighborGather() = default;
  // One per source, in the order of the call's. Once the operation is over.
  virtual std::vector<Bytes>& parts() = 0;
  // Where they are from, in the same order.
  virtual std::vector<Rank> sources() const = 0;
};

// Any thread. Its operations go on until they are over, whoever waits for them: after a deadline,
// too. The runtime outlives its use.
class Neighbors {
 public:
  // `name`: NeighborOptions::name.
  static Result<std::shared_ptr<Neighbors>> create(Runtime& runtime, std::string name);

  // As NeighborExchange::start() and start_gather(). Input and output are the operation's until it
  // is over; name and neighbours are copied. `when_over`: Operation::when_over(). A gather without
  // destinations can be withdrawn (Operation::withdraw()); `missed` says what that means.
  Result<std::shared_ptr<Operation>> start(const collective::NeighborCall& call);
  struct Gathering {
    std::shared_ptr<Operation> operation;
    std::shared_ptr<NeighborGather> result;  // the same object
  };
  Result<Gathering> start_gather(const collective::NeighborCall& call,
                                 std::function<void()> when_over = {},
                                 collective::Missed missed = collective::Missed::kDropped);
  // The same from one of the sources, whichever has sent under this name first; of several that
  // have, the first of the list behind the one that was taken last. Gathers of one name take in
  // the order in which they were started. Fails for a death when none of the sources is left.
  // Withdrawn before anything has come, it leaves that to the next one.
  Result<Gathering> start_gather_any(const collective::NeighborCall& call,
                                     std::function<void()> when_over = {});

  // The same as start(), and waits for the deadline. `unfinished`: as Runtime::run().
  Status average(const collective::NeighborCall& call, const Runtime::Interrupt& interrupt,
                 std::shared_ptr<Operation>* unfinished);

 private:
  class Exchange;
  class Average;
  class Gather;
  class AnyGather;
  Neighbors(Runtime& runtime, std::shared_ptr<Exchange> exchange)
      : runtime_(runtime), exchange_(std::move(exchange)) {}

  Runtime& runtime_;
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace dunlin::binding
