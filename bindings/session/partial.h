// PartialReduces: all-reduces among any ranks, which may differ from call to call
// (collectives/partial/partial_all_reduce.h), as part of the session.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bindings/session/model_copies.h"
#include "bindings/session/session.h"
#include "collectives/partial/partial_all_reduce.h"

namespace dunlin::binding {

// Threads: any. The session has to outlive it.
//
// Calls of one name are ordered by their numbers, and a rank carries them out one after the other.
// Each name takes 6 MiB of registered memory at each rank that uses it.
//
// On a GPU, calls are carried out in memory of this object: a buffer of the call's size for each
// that is in progress, which is kept for later calls. The input is copied to it and the result from
// it, within the GPU, and no thread waits for these copies. All calls of a name at one rank use
// host memory, or the same GPU. Either all members use host memory, or each of them a GPU, whose
// numbers may differ.
//
// An operation is given up Config::deadline after its turn has come, whether or not a thread waits
// for it. Its members are told, and the next operation of the name has its turn. On a GPU, it is
// not given up while its input is being copied, which waits for the caller's stream; the members
// give it up at their own deadlines.
class PartialReduces {
 public:
  struct Call {
    collective::PartialCall call;
    // The GPU, by its number in this process, in whose memory input and output are; empty: host
    // memory.
    std::optional<int> gpu{};
    // As those of ModelMemory.
    std::shared_ptr<GpuEvent> input_ready{};
    std::shared_ptr<GpuEvent> output_ready{};
  };

  static Result<std::shared_ptr<PartialReduces>> create(Session& session);

  // See PartialAllReduce::start(). Input and output belong to the operation until it is over. The
  // call's number 0 stands for one more than that of this rank's last call of the name.
  Result<std::shared_ptr<SessionOperation>> start(const std::string& name, const Call& call);
  // start(), then waits until it is over, or, behind earlier operations of the name, for a few
  // seconds more than Config::deadline. `unfinished`: as for Session::run(). Null: an unfinished
  // operation is given up, so that its output is no longer written to.
  Status run(const std::string& name, const Call& call, const Session::Interrupt& interrupt,
             std::shared_ptr<SessionOperation>* unfinished);

 private:
  class Body;
  class Reduce;
  PartialReduces(Session& session, std::shared_ptr<Body> body)
      : session_(session), body_(std::move(body)) {}
  Session::Make maker(const std::string& name, const Call& call) const;

  Session& session_;
  std::shared_ptr<Body> body_;
};

}  // namespace dunlin::binding
