// A rank of a job in which one rank is slow, for tests of flight records. Each step of a rank is a
// sleep, which takes as long on a loaded host, and an all-reduce.
//
//   straggler_rank STEPS SLOW_RANK FACTOR [stick AT_STEP]
//
// SLOW_RANK sleeps FACTOR times as long as the others. With "stick", it sleeps for ever in that
// step. Each rank prints "at STEP" every ten steps. STEPS 0: until a signal ends it.
#include <dunlin/communicator.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace {

constexpr auto kCompute = std::chrono::milliseconds(40);

struct Scenario {
  long steps = 0;
  int slow_rank = 0;
  int factor = 1;
  long stick_at = 0;  // 0: never
};

dunlin::Status run(const Scenario& scenario) {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  {
    DUNLIN_ASSIGN(auto world, dunlin::Communicator::create(job));
    DUNLIN_ASSIGN(const std::span<float> gradients, world.allocate<float>(10'000));
    const bool is_slow = job.rank().value() == scenario.slow_rank;
    for (long step = 1; scenario.steps == 0 || step <= scenario.steps; ++step) {
      job.begin_step(static_cast<std::uint64_t>(step));
      while (is_slow && step == scenario.stick_at) pause();
      std::this_thread::sleep_for(is_slow ? scenario.factor * kCompute : kCompute);
      DUNLIN_TRY(world.all_reduce(gradients, dunlin::ReduceOp::kAverage));
      if (step % 10 == 0) std::printf("at %ld\n", step);
      std::fflush(stdout);
    }
    DUNLIN_TRY(world.barrier());
  }
  return job.leave();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 6) return 2;
  Scenario scenario{std::atol(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]), 0};
  if (argc == 6 && std::string_view(argv[4]) == "stick") scenario.stick_at = std::atol(argv[5]);
  const dunlin::Status status = run(scenario);
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
