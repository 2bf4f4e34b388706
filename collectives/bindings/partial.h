// PartialReduces: all-reduces of the process among ranks of its programs' choice, others in each
// call (partial_all_reduce.h).
#pragma once

#include <memory>
#include <string>

#include "collectives/bindings/runtime.h"
#include "collectives/partial/partial_all_reduce.h"

namespace dunlin::binding {

// Any thread. The runtime outlives its use.
//
// Calls of one name are in one total order, that of their numbers, and a rank carries them out one
// after the other. Each name takes 6 MiB of registered memory at each rank that uses it.
//
// An operation that is not over config.deadline after its turn has come is given up, whoever waits
// for it: the later ones of its name have their turn, and its members hear of that.
class PartialReduces {
 public:
  static Result<std::shared_ptr<PartialReduces>> create(Runtime& runtime);

  // As PartialAllReduce::start(). Input and output are the operation's until it is over. `number`
  // 0: one more than that of this rank's last call of the name.
  Result<std::shared_ptr<Operation>> start(const std::string& name,
                                           const collective::PartialCall& call);
  // The same, and waits until it is over, or for longer than the deadline where it is behind others
  // that aren't. `unfinished`: as Runtime::run(); null: what is not over by then is given up, so
  // that nobody writes to its output any more.
  Status run(const std::string& name, const collective::PartialCall& call,
             const Runtime::Interrupt& interrupt, std::shared_ptr<Operation>* unfinished);

 private:
  class Body;
  class Reduce;
  PartialReduces(Runtime& runtime, std::shared_ptr<Body> body)
      : runtime_(runtime), body_(std::move(body)) {}
  Runtime::Make maker(const std::string& name, const collective::PartialCall& call) const;

  Runtime& runtime_;
  std::shared_ptr<Body> body_;
};

}  // namespace dunlin::binding
