// PairAverage: AD-PSGD (collectives/training/methods/ad_psgd.h) as part of the session: a rank's
// model, which is averaged with one random neighbor at a time.
//
// Threads: any. The background thread, or a waiting thread, averages with neighbors that ask for it
// while this rank computes, until leave(). It lasts until the session's shutdown(); later calls
// return kClosed. The session has to outlive it. The deaths of other ranks are no errors: the
// others continue.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bindings/session/session.h"
#include "collectives/training/method.h"

namespace dunlin::binding {

class PairAverage {
 public:
  struct Options {
    std::string name = "pairs";
    std::size_t count = 0;           // floats in a model
    std::string graph = "complete";  // a text for collective::make_graph()
    std::uint64_t seed = 1;
  };

  // Collective over all ranks, with the same options. `mistake`: an error that this rank's caller
  // has found in its options. The call is made all the same, so that all ranks fail.
  static Result<std::shared_ptr<PairAverage>> create(Session& session, Options options,
                                                     const Session::Interrupt& interrupt,
                                                     Status mistake = {});

  const Options& options() const { return options_; }

  // Averages with a neighbor. `model`: `count` floats that belong to the operation until it is
  // over. The first call gives this rank's initial model. Later ones give what the worker has made
  // of the last call's result: the difference is added to the model, which neighbors may have
  // averaged with theirs since. When the operation is over, `model` is the rank's model; after an
  // error it is unchanged. kInvalidArgument: an operation is in progress, or leave() was called.
  Result<std::shared_ptr<SessionOperation>> start(float* model);
  // start(), then waits for Config::deadline at most. `unfinished`: as for Session::run().
  Status run(float* model, const Session::Interrupt& interrupt,
             std::shared_ptr<SessionOperation>* unfinished);
  // This rank averages no more. Waits, for Config::deadline at most, until the neighbors know it.
  // `model`, unless it is null, gets the model with its last averages. It belongs to the operation
  // until that is over.
  Status leave(float* model, const Session::Interrupt& interrupt,
               std::shared_ptr<SessionOperation>* unfinished);

  // Only counts what start() began and neighbors asked for.
  Result<training::MethodReport> report();

 private:
  class Body;  // under the session's lock
  class Step;
  enum class Kind : std::uint8_t { kAverage, kLeave };

  PairAverage(Session& session, Options options)
      : session_(session), options_(std::move(options)) {}
  Status build(const Session::Interrupt& interrupt, Status mistake);
  Session::Make maker(Kind kind, float* model) const;

  Session& session_;
  Options options_;
  std::shared_ptr<Body> body_;
};

}  // namespace dunlin::binding
