// Signature: what all members of a communicator must agree on in a call, in 64 bits.
//
// Every message of a call carries the signature of its sender's call (schedule/executor.h). The
// upper bits name the kind of call, so that an error can tell what the peer executes. The lower
// bits are a hash of the rest: count, root, name, places in memory, slices, and how many calls
// without elements came before.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/communicator/plan.h"
#include "collectives/kernels/reduce.h"
#include "collectives/schedule/algorithm.h"

namespace dunlin::collective {

struct CallTerms {
  Problem problem;  // of the whole call
  Reduction reduction;
  const Algorithm* algorithm = nullptr;
  bool is_staged = false;         // the memory is not from allocate()
  bool is_one_gpu = false;        // Shape::is_one_gpu
  std::size_t slice = 0;          // elements per part
  std::uint64_t empty_calls = 0;  // calls without elements so far, which send no messages
  std::string name;               // Call::name
  Placement input;
  Placement output;
};

std::uint64_t signature_of(const CallTerms& terms);

// "all-reduce 'ring' of 1000 float32 (sum), input at byte 0 of allocation 2, ...".
std::string describe(const CallTerms& terms);
// What the signature alone says: "all-reduce 'ring' of float32 (sum)".
std::string describe_signature(std::uint64_t signature);

}  // namespace dunlin::collective
