// One-sided communication between ranks 0 and 1: a ping-pong of puts with notifications, whose half
// is the latency, then a get and an atomic where the transport has them.
//
//   dunlin-run -n 2 put_notify
#include <dunlin/lane.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

using dunlin::Completion;
using dunlin::Rank;
using dunlin::Status;

static constexpr auto kTimeout = std::chrono::seconds(30);
static constexpr std::uint64_t kRounds = 1000;
static constexpr std::size_t kBytes = 64;

// Puts the first kBytes of `memory` into the peer's memory, with a notification.
static Status send(dunlin::Lane& lane, const dunlin::Memory& memory,
                   const dunlin::RemoteMemory& remote, const dunlin::Notification& notification) {
  DUNLIN_ASSIGN(const auto from, memory.slice(0, kBytes));
  DUNLIN_ASSIGN(const auto to, remote.slice(kBytes, kBytes));
  Completion done;
  DUNLIN_TRY(lane.put_notify(from, to, notification, &done));
  return lane.wait(done, kTimeout);
}

static Status ping_pong(dunlin::Job& job, Rank peer) {
  // The peer writes into the second half of the memory, and notifies the cell.
  DUNLIN_ASSIGN(const auto memory, dunlin::Memory::allocate(job, 2 * kBytes));
  DUNLIN_ASSIGN(auto cells, dunlin::NotificationCells::allocate(job, 1));
  const dunlin::NotificationId own = cells.id(0);
  DUNLIN_TRY(memory.share("ping-pong"));
  DUNLIN_TRY(job.publish("cell of " + std::to_string(job.rank().value()),
                         std::as_bytes(std::span(&own, 1))));
  DUNLIN_ASSIGN(const auto remote, dunlin::RemoteMemory::open(job, peer, "ping-pong", kTimeout));
  DUNLIN_ASSIGN(const dunlin::Bytes cell,
                job.lookup_from(peer, "cell of " + std::to_string(peer.value()), kTimeout));
  dunlin::Notification notification;
  std::memcpy(&notification.id, cell.data(), sizeof notification.id);
  DUNLIN_ASSIGN(auto lane, dunlin::Lane::open(job, peer));

  std::vector<double> times;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    const auto began = std::chrono::steady_clock::now();
    notification.sequence = round;
    std::memset(memory.data(), static_cast<int>(round), kBytes);
    if (job.rank() == Rank(0)) DUNLIN_TRY(send(lane, memory, remote, notification));
    DUNLIN_TRY(cells.wait(0, round, peer, kTimeout));
    if (memory.data()[2 * kBytes - 1] != static_cast<std::byte>(round))
      return {dunlin::Code::kInternal, "the notification came before the data"};
    if (job.rank() == Rank(1)) DUNLIN_TRY(send(lane, memory, remote, notification));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began;
    times.push_back(time.count());
  }
  std::ranges::nth_element(times, times.begin() + kRounds / 2);
  if (job.rank() == Rank(0))
    std::printf("put with notification: %.2f us\n", times[kRounds / 2] / 2 * 1e6);

  if (lane.has_get() && job.rank() == Rank(0)) {
    Completion done;
    DUNLIN_ASSIGN(const auto from, remote.slice(0, kBytes));
    DUNLIN_ASSIGN(const auto to, memory.slice(0, kBytes));
    std::memset(memory.data(), 0, kBytes);
    DUNLIN_TRY(lane.get(from, to, &done));
    DUNLIN_TRY(lane.wait(done, kTimeout));
    if (memory.data()[0] != static_cast<std::byte>(kRounds))
      return {dunlin::Code::kInternal, "the get read something else"};
  }
  DUNLIN_TRY(job.barrier());
  // Both ranks add to a word of rank 0, each by way of its own lane; a rank has one to itself, too.
  if (lane.atomic_scope() == dunlin::AtomicScope::kSystem) {
    DUNLIN_ASSIGN(auto to_zero, dunlin::Lane::open(job, Rank(0)));
    DUNLIN_ASSIGN(const auto words,
                  dunlin::RemoteMemory::open(job, Rank(0), "ping-pong", kTimeout));
    DUNLIN_ASSIGN(const auto word, words.slice(0, sizeof(std::uint64_t)));
    if (job.rank() == Rank(0)) std::memset(memory.data(), 0, kBytes);
    DUNLIN_TRY(job.barrier());
    Completion done;
    DUNLIN_TRY(to_zero.fetch_add(word, 21, nullptr, &done));
    DUNLIN_TRY(to_zero.wait(done, kTimeout));
    DUNLIN_TRY(job.barrier());
    if (job.rank() == Rank(0) && memory.as<std::uint64_t>()[0] != 42)
      return {dunlin::Code::kInternal, "an atomic addition is missing"};
  }
  return job.barrier();
}

static Status run() {
  DUNLIN_ASSIGN(auto job, dunlin::Job::join());
  if (job.size() != 2) return {dunlin::Code::kInvalidArgument, "put_notify is for two ranks"};
  DUNLIN_TRY(ping_pong(job, Rank(1 - job.rank().value())));
  return job.leave();
}

int main() {
  const Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status ? 0 : 1;
}
