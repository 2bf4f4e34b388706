// StragglerRing: an all-reduce around a ring of all ranks that does not wait for a late rank
// (collectives/straggler/straggler_ring.h), as part of the session.
//
// Threads: any. While a caller computes, the background thread, or a waiting thread, continues an
// all-reduce that was started. It lasts until free() or the session's shutdown(); later calls
// return kClosed. The session has to outlive it.
//
// Errors of an all-reduce are final: if any rank dies, the one in progress and all later ones
// return kPeerDead, which names it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bindings/session/session.h"
#include "collectives/kernels/data_type.h"
#include "collectives/straggler/straggler_ring.h"

namespace dunlin::binding {

class StragglerRing {
 public:
  struct Options {
    std::string name = "straggler-ring";
    collective::DataType type = collective::DataType::kFloat32;  // or kFloat64
    std::size_t count = 0;                                       // elements
    bool is_average = true;
    collective::LatenessOptions lateness;
  };
  // What the all-reduces of this rank have done, in all; as in StragglerReport.
  struct Statistics {
    std::uint64_t all_reduces = 0;  // that have ended
    std::uint64_t timeouts = 0;
    std::uint64_t skips = 0;
    std::uint64_t skipped = 0;
    std::uint64_t forwards = 0;
    std::uint64_t bytes_sent = 0;
    Duration took{};
  };

  // Collective over all ranks, with the same options. `mistake`: an error that this rank's caller
  // has found in its options. The call is made all the same, so that all ranks fail.
  static Result<std::shared_ptr<StragglerRing>> create(Session& session, Options options,
                                                       const Session::Interrupt& interrupt,
                                                       Status mistake = {});
  // Collective: waits until all ranks have called it. kInvalidArgument at all ranks if an
  // all-reduce is in progress at one. It is freed if this returns ok or kPeerDead.
  Status free(const Session::Interrupt& interrupt);

  const Options& options() const { return options_; }
  // The vector, `count` elements. It is the caller's between all-reduces. Its memory stays valid
  // for as long as its owner is held, also after free().
  const SharedMemory& data() const { return data_; }

  // Begins to reduce the vector. kInvalidArgument: the last all-reduce is in progress.
  Result<std::shared_ptr<SessionOperation>> start();
  // start(), then waits for Config::deadline at most. `unfinished`: as for Session::run().
  Status run(const Session::Interrupt& interrupt, std::shared_ptr<SessionOperation>* unfinished);

  Result<Statistics> statistics();

 private:
  class Body;  // under the session's lock
  template <typename T>
  class TypedBody;

  StragglerRing(Session& session, Options options)
      : session_(session), options_(std::move(options)) {}
  Status build(const Session::Interrupt& interrupt, Status mistake);
  Result<std::shared_ptr<Resident>> prepare(transport::Fabric& fabric, std::uint64_t number);
  std::string title() const;  // for errors
  Session::Make maker() const;

  Session& session_;
  Options options_;
  std::shared_ptr<Body> body_;
  SharedMemory data_;
};

}  // namespace dunlin::binding
