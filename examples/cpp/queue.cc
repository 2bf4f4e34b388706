// NOTIFY-ACK: each rank sends messages to the next one in a ring. Two slots are all that a sender
// may be ahead, however slow its receiver is; no message is lost, torn or overwritten.
//
//   dunlin-run -n 4 queue
#include <dunlin/queue.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

using dunlin::Rank;
using dunlin::Status;

static constexpr auto kTimeout = std::chrono::seconds(30);
static constexpr std::size_t kCount = 10'000;
static constexpr std::uint64_t kMessages = 20;

static Status exchange(dunlin::Job& job) {
  const int rank = job.rank().value();
  const Rank next((rank + 1) % job.size());
  const Rank former((rank + job.size() - 1) % job.size());
  dunlin::QueueOptions options{.name = "ring", .in = {former}, .out = {next}};
  options.slot_bytes = kCount * sizeof(float);
  DUNLIN_ASSIGN(auto queues, dunlin::Queues::create(job, options));
  DUNLIN_ASSIGN(const auto memory, dunlin::Memory::allocate(job, options.slot_bytes));
  DUNLIN_ASSIGN(const auto payload, memory.slice(0, options.slot_bytes));
  const std::span<float> model = memory.as<float>().first(kCount);

  for (std::uint64_t step = 1; step <= kMessages; ++step) {
    std::ranges::fill(model, static_cast<float>(rank) + 100.0F * static_cast<float>(step));
    DUNLIN_TRY(queues.send(next, payload, /*tag=*/step, kTimeout));
    DUNLIN_ASSIGN(const dunlin::Message message, queues.receive(former, kTimeout));
    const auto* const values = reinterpret_cast<const float*>(message.data.data());
    const float expected =
        static_cast<float>(former.value()) + 100.0F * static_cast<float>(message.tag);
    if (message.tag != step || values[0] != expected || values[kCount - 1] != expected)
      return {dunlin::Code::kInternal, "a message is not what was sent"};
    DUNLIN_TRY(queues.release(former));
  }
  if (rank == 0) std::printf("%d messages went round a ring\n", static_cast<int>(kMessages));
  return job.barrier();
}

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  if (job.size() < 2) return {dunlin::Code::kInvalidArgument, "a ring has two ranks or more"};
  DUNLIN_TRY(exchange(job));
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
