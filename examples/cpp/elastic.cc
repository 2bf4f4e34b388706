// A job that processes join while it runs. All members average a vector, step by step, until
// MEMBERS of them have done so together for ten steps.
//
//   dunlin-run -n 2 --max-ranks 4 --job-file job example_elastic 3 &
//   dunlin-run --join job -n 1 example_elastic 3
#include <dunlin/communicator.h>
#include <dunlin/elastic.h>
#include <dunlin/job.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace dunlin;

constexpr auto kTimeout = std::chrono::seconds(60);

Status run(std::size_t wanted) {
  DUNLIN_ASSIGN(Job job, Job::join());
  std::vector<float> model(1000, 1.0F);
  std::uint64_t step = 0;
  JobMembers members = job.members();
  bool is_new = job.is_newcomer();
  if (is_new) {
    DUNLIN_ASSIGN(members, job.reform(kTimeout));
  }
  std::optional<Communicator> group;
  int left = 10;  // steps with all that are wanted
  while (left > 0) {
    bool changes = false;
    if (group) {
      DUNLIN_ASSIGN(changes, job.changes_before(step + 1));
    }
    if (changes) {
      DUNLIN_TRY(job.barrier());  // until no member of the epoch uses the communicator any more
      group.reset();
      DUNLIN_ASSIGN(members, job.reform(kTimeout));
    }
    if (!group) {
      DUNLIN_ASSIGN(step, share_model(job, members, std::as_writable_bytes(std::span(model)), step,
                                      is_new, kTimeout));
      is_new = false;
      DUNLIN_ASSIGN(group,
                    Communicator::create(job, {.name = "epoch-" + std::to_string(members.epoch),
                                               .members = members.ranks}));
      std::printf("epoch %llu: %zu members\n", static_cast<unsigned long long>(members.epoch),
                  members.ranks.size());
    }
    ++step;
    for (float& element : model) element += static_cast<float>(job.rank().value());
    DUNLIN_TRY(group->all_reduce(std::span(model), ReduceOp::kAverage));
    if (members.ranks.size() >= wanted) --left;
  }
  std::printf("after step %llu: %.6f\n", static_cast<unsigned long long>(step),
              static_cast<double>(model.front()));
  return job.leave();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Status status = run(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 3);
    if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return status ? 0 : 1;
  } catch (const std::exception& error) {  // for want of memory
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
