// Training: a method of collectives/training as part of the session: AD-PSGD, or parameter servers.
//
// Threads: any. The background thread, or a waiting thread, does what other ranks need of this one
// while it computes: it averages with neighbors (AD-PSGD), sends gradients, or serves. It lasts
// until the session's shutdown(); later calls return kClosed. The session has to outlive it.
//
// Where the method survives deaths (training::survives_deaths), the deaths of workers are no
// errors. Other deaths are errors of the step in progress and of all later ones.
#pragma once

#include <cstdint>
#include <memory>

#include "bindings/session/session.h"
#include "collectives/training/method.h"

namespace dunlin::binding {

class Training {
 public:
  // One step of a worker. The memory belongs to the operation until it is over.
  struct Step {
    // `count` floats. They are the worker's parameters in the first step, and in every step if
    // steps are the worker's own. When the operation is over, they are the method's parameters;
    // after an error they are unchanged.
    float* model = nullptr;
    const float* gradient = nullptr;  // `count` floats; null if steps are the worker's own
    float learning_rate = 0;
  };

  // Collective over all ranks, with the same options. `mistake`: an error that this rank's caller
  // has found in its options. The call is made all the same, so that all ranks fail.
  static Result<std::shared_ptr<Training>> create(Session& session, training::MethodOptions options,
                                                  const Session::Interrupt& interrupt,
                                                  Status mistake = {});

  const training::MethodOptions& options() const { return options_; }
  // Whether this rank holds a part of the model for the others, and doesn't train.
  bool is_server() const { return is_server_; }

  // Starts a worker's step. kInvalidArgument: an operation is in progress, leave() was called, or
  // this rank is a server.
  Result<std::shared_ptr<SessionOperation>> start(const Step& step);
  // start(), then waits for Config::deadline at most. `unfinished`: as for Session::run().
  Status run(const Step& step, const Session::Interrupt& interrupt,
             std::shared_ptr<SessionOperation>* unfinished);
  // This worker trains no more. Waits, for Config::deadline at most, until no other rank needs it.
  // Then `model`, unless it is null, gets the parameters if there was a step. Leaving continues
  // after a timeout or an interrupt, and the next call waits for it again.
  Status leave(float* model, const Session::Interrupt& interrupt);
  // Servers only: waits for `timeout` at most until all workers have left. May be called again
  // after a timeout. Ranks are served whether or not a thread is in this call.
  Status serve(Duration timeout, const Session::Interrupt& interrupt);

  Result<training::MethodReport> report();

 private:
  class Body;  // under the session's lock
  class Operation;
  enum class Kind : std::uint8_t { kStep, kLeave, kServe };

  Training(Session& session, training::MethodOptions options)
      : session_(session), options_(std::move(options)) {}
  Status build(const Session::Interrupt& interrupt, Status mistake);
  Session::Make maker(Kind kind, const Step& step) const;

  Session& session_;
  training::MethodOptions options_;
  bool is_server_ = false;
  std::shared_ptr<Body> body_;
  std::shared_ptr<SessionOperation>
      leaving_;  // under the session's lock; until leave() tells its end
};

}  // namespace dunlin::binding
