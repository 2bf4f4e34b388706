// StochasticReduce: a stochastic reduce (collectives/stochastic/stochastic_reduce.h) over all
// members of the session, as part of it.
//
// Threads: any. While a caller computes, the background thread, or a waiting thread, takes in what
// neighbors send, also those that are ahead, and continues a reduce that was started. It lasts
// until free(), or the session's reform() or shutdown(); later calls return kClosed. The session
// has to outlive it.
//
// Errors of a reduce are final: if any rank dies, the reduce in progress and all later ones return
// kPeerDead, which names it. The survivors can make another one after Session::reform().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bindings/session/model_copies.h"
#include "bindings/session/session.h"
#include "collectives/graph/graph.h"
#include "collectives/graph/mixing.h"
#include "collectives/kernels/data_type.h"
#include "collectives/stochastic/stochastic_reduce.h"

namespace dunlin::binding {

class StochasticReduce {
 public:
  struct Options {
    std::string name = "model";
    collective::DataType type = collective::DataType::kFloat32;  // or kFloat64
    std::size_t count = 0;                                       // elements of a model
    std::optional<collective::Graph> graph;                      // its nodes are the members
    collective::Weighting weighting = collective::Weighting::kUniform;
    collective::SyncMode mode = collective::SyncMode::kNotifyAck;
    std::uint32_t depth = 2;  // receive slots per in-neighbor
    // The GPU, by its number in this process, in whose memory all models are; empty: host memory.
    // Either all ranks have a GPU or none has. It needs the mode notify-ack.
    std::optional<int> gpu{};
  };
  // What the reduces of this rank have done, in all.
  struct Statistics {
    std::uint64_t reduces = 0;  // that have ended
    std::uint64_t inputs = 0;   // models of in-neighbors that were averaged in
    std::uint64_t torn = 0;     // left out since they were overwritten while being read
    std::uint64_t stale = 0;    // left out since nothing new had arrived
    std::uint64_t bytes_sent = 0;
    Duration waited{};  // from the ends of sending to the last inputs
  };

  // Collective over all ranks, with the same options. `mistake`: an error that this rank's caller
  // has found in its options. The call is made all the same, so that all ranks fail.
  static Result<std::shared_ptr<StochasticReduce>> create(Session& session, Options options,
                                                          const Session::Interrupt& interrupt,
                                                          Status mistake = {});
  // Collective: waits until all ranks have called it. kInvalidArgument at all ranks if a reduce is
  // in progress at one. It is freed if this returns ok or kPeerDead.
  Status free(const Session::Interrupt& interrupt);

  const Options& options() const { return options_; }

  // Copies the model, `count` elements, and sends it to the out-neighbors. When the operation is
  // over, the result holds the average. After an error it is unchanged. A model in host memory is
  // copied at once and may be changed when this returns; on a GPU, it must not be changed before
  // the operation is over. kInvalidArgument: the last reduce is in progress. Nothing was sent then.
  Result<std::shared_ptr<SessionOperation>> start(const ModelMemory& memory);
  // start(), then waits for Config::deadline at most. `unfinished`: as for Session::run().
  Status run(const ModelMemory& memory, const Session::Interrupt& interrupt,
             std::shared_ptr<SessionOperation>* unfinished);

  Result<Statistics> statistics();

 private:
  class Body;  // under the session's lock
  template <typename T>
  class TypedBody;

  StochasticReduce(Session& session, Options options)
      : session_(session), options_(std::move(options)) {}
  Status build(const Session::Interrupt& interrupt, Status mistake);
  Result<std::shared_ptr<Resident>> prepare(transport::Fabric& fabric, std::uint64_t number);
  std::string title() const;  // for errors
  Session::Make maker(const ModelMemory& memory) const;

  Session& session_;
  Options options_;
  std::shared_ptr<Body> body_;
};

}  // namespace dunlin::binding
