// Joins the job, prints its rank and how it reaches the next rank.
//
//   dunlin-run -n 4 hello
#include <dunlin/job.h>
#include <dunlin/version.h>

#include <cstdio>

using dunlin::Rank;
using dunlin::Status;

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  const Rank next((job.rank().value() + 1) % job.size());
  std::printf("rank %d of %d, Dunlin %s; rank %d: %s\n", job.rank().value(), job.size(),
              dunlin::version(), next.value(), job.explain(next).c_str());
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
