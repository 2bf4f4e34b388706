// Finds the checkpoint from which a job continues, together with the job's other ranks. Any number
// of ranks can continue from it.
//
// A checkpoint consists of the files of all ranks that saved it, of one run and one iteration.
// Where ranks do not wait for one another, it consists of the latest file of each rank in a run.
// The one that is taken is the latest complete checkpoint of the run that began last. Each file is
// read by one rank, whose judgment counts for all, so that all ranks find the same checkpoint.
//
// In a job of as many ranks as have saved, each rank continues from its own file and needs no
// other. Otherwise the N saved states are dealt out to the M members in turn: that of saved rank s
// falls to member s mod M. If there are more members than states, member m takes that of saved rank
// m mod N. Owner thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "apps/checkpoint_files.h"
#include "runtime/bootstrap/bootstrap.h"

namespace dunlin {

// What the search has to know of a file.
struct SavedState {
  CheckpointName name;     // as its content says
  std::uint64_t run = 0;   // new_run()
  std::uint64_t done = 0;  // the training that this rank has behind it, in the program's unit
};

// Reads a file completely and checks it.
using StateReader = std::function<Result<SavedState>(const std::string& path)>;

struct CheckpointSearch {
  std::string topic;  // for the job's messages; each is used once
  std::string base;
  std::vector<Rank> members;  // the ranks that continue, ascending
  std::uint32_t ranks = 1;    // that the job began with: the members, unless some have died
  bool needs_same_iteration = true;
  Duration timeout{};
};

struct FoundCheckpoint {
  std::uint64_t run = 0;
  std::vector<std::uint64_t> iterations;  // of each rank that saved; 0 where nobody needs its file
  double done = 0;                        // the training of all these ranks together
  std::vector<std::uint32_t> own;         // the saved ranks whose states fall to this rank
  // Whether this rank has read the files of `own` for all. It has not where there are more ranks
  // than states, and a state falls to several ranks.
  bool has_read = false;

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(iterations.size()); }
  CheckpointName name(std::uint32_t rank) const { return {rank, ranks(), iterations[rank]}; }
};

// Collective over the members. kNotFound when there is no complete checkpoint: the message names
// the files that are missing, damaged or of another run, and the ranks that need them. kPeerDead as
// soon as a member dies. Logs files that cannot be used, and checkpoints that are passed over.
Result<FoundCheckpoint> find_checkpoint(const CheckpointSearch& search, const StateReader& read,
                                        Bootstrap& bootstrap);

// The iterations of which this rank has files of that run.
std::set<std::uint64_t> saved_iterations(const std::string& base, std::uint32_t rank,
                                         std::uint32_t ranks, std::uint64_t run,
                                         const StateReader& read);

}  // namespace dunlin
