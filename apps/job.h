// What the main functions of the applications have in common: joining the job, exit codes, and what
// ranks tell one another before and after the training. Each function runs on the thread that owns
// the fabric.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transports/fabric.h"

namespace dunlin {

// Logs a failure and returns the exit code for it: 2 for an error that the user has to correct,
// otherwise 1.
int fail(const Status& status);

// What an application does on each rank. False: the run ended without what it was asked to reach,
// and has said so.
using JobBody = std::function<Result<bool>(transport::Fabric&)>;

// Joins the job that the environment describes, runs the body on its fabric, and writes the trace
// if one is configured. `transport` replaces DUNLIN_TRANSPORTS unless it is empty. Returns the exit
// code: 0 for true, 3 for false, fail() for an error.
int run_job(const std::string& transport, const JobBody& body);

// The main function of an application. `parse` returns nothing when the program has to end with the
// exit code that it stores. `run` is the body of the job. `run_alone`, if given, returns an exit
// code for options that need no job.
template <typename Options>
int run_program(int argc, char** argv, std::optional<Options> (*parse)(int, char**, int&),
                Result<bool> (*run)(transport::Fabric&, const Options&),
                std::optional<int> (*run_alone)(const Options&) = nullptr) {
  int exit_code = 0;
  const std::optional<Options> options = parse(argc, argv, exit_code);
  if (!options) return exit_code;
  if (run_alone != nullptr) {
    if (const std::optional<int> code = run_alone(*options)) return *code;
  }
  return run_job(options->transport,
                 [&](transport::Fabric& fabric) { return run(fabric, *options); });
}

// Waits until `owner` has published `key` at the bootstrap. The wait ends with kPeerDead when
// `owner` dies, and with kDeadlineExceeded after `timeout`. `what` names the value in errors.
Result<Bytes> await_published(transport::Fabric& fabric, Rank owner, const std::string& key,
                              const std::string& what, Duration timeout);

// Waits until `publisher` has published `key`, as Bootstrap::lookup_from() does, but ends with
// kPeerDead when any of `members` dies: a publisher that waits for another member to come back, or
// that has joined a new group, would never answer. kDeadlineExceeded after `timeout`.
Result<Bytes> lookup_among(Bootstrap& bootstrap, const std::vector<Rank>& members, Rank publisher,
                           const std::string& key, Duration timeout);

// Returns the value that rank 0 passes, on every rank. The other ranks wait for it as described at
// await_published(). Each key is used once in a job.
Result<Bytes> broadcast_from_rank_0(transport::Fabric& fabric, const std::string& key,
                                    const std::string& what, const Bytes& value, Duration timeout);

}  // namespace dunlin
