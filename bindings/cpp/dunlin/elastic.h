// How to write a program for a job that processes join and leave while it runs. Start it with
//
//   dunlin-run -n 4 --max-ranks 12 --job-file FILE PROGRAM
//   dunlin-run --join FILE -n 1 PROGRAM                        # newcomers, later
//
//   DUNLIN_ASSIGN(auto job, dunlin::Job::join());
//   dunlin::JobMembers members = job.members();
//   if (job.is_newcomer()) {             // when it is ready to take part
//     DUNLIN_ASSIGN(members, job.reform(timeout));
//   }
//   bool has_group = false;
//   for (;;) {
//     bool changes = false;
//     if (has_group) {
//       DUNLIN_ASSIGN(changes, job.changes_before(step + 1));
//     }
//     if (changes) ...                   // barrier(), leave the group, reform(), or leave the job
//     if (changes || !has_group) ...     // share_model(), make a new group of the members
//     has_group = true;
//     ++step;
//     ...
//   }
//
// examples/cpp/elastic.cc has all of it.
//
// Before the members destroy what they share, such as a communicator, they call Job::barrier(),
// because another member may still be in the last step.
//
// If members end at different steps, each calls changes_before() with the largest number, ~0,
// before it ends. From then on, the members do not change any more.
//
// A rank that is to leave calls Job::retire() at any time. Where changes_before() returns true, it
// destroys its Job after that barrier, instead of calling reform(). After a death, the survivors
// call reform() at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <dunlin/job.h>

namespace dunlin {

// Brings the model to newcomers. Collective over `members`, which reform() has returned, once in an
// epoch. Each newcomer passes is_new and memory of the model's size. It reads the model of another
// member, the next one of the list that is not new, by one-sided reads, and gets its `version`,
// such as the number of the last step. Returns the version: of the member that was read, or the own
// one. If all members are new, nothing is read. The members stay here until all have read.
// kInvalidArgument if the sizes differ, kPeerDead if a member dies meanwhile.
Result<std::uint64_t> share_model(Job& job, const JobMembers& members, std::span<std::byte> model,
                                  std::uint64_t version, bool is_new, Duration timeout);

}  // namespace dunlin
