// The public C++ interface: jobs, memory, lanes, notifications, queues, barriers and mutexes.
#include <dunlin/barrier.h>
#include <dunlin/lane.h>
#include <dunlin/mutex.h>
#include <dunlin/queue.h>
#include <dunlin/version.h>

#include <cstring>
#include <string>

#include "tests/bindings/cpp_ranks.h"

namespace dunlin_test {
namespace {

using dunlin::Code;
using dunlin::Completion;
using dunlin::Job;
using dunlin::Memory;
using dunlin::Rank;
using dunlin::RemoteMemory;
using dunlin::Status;

TEST(CppJob, KnowsItsRanks) {
  run_ranks(3, [](Job& job) {
    EXPECT_EQ(job.size(), 3);
    EXPECT_EQ(job.local_size(), 3);
    EXPECT_EQ(job.local_rank(), job.rank().value());
    EXPECT_EQ(job.members().ranks, (std::vector<Rank>{Rank(0), Rank(1), Rank(2)}));
    EXPECT_EQ(job.members().epoch, 0U);
    EXPECT_OK(job.check(Rank(2)));
    EXPECT_EQ(job.check(Rank(3)).code(), Code::kOutOfRange);
    EXPECT_EQ(job.trace(), nullptr);
    const std::string key = "key of " + std::to_string(job.rank().value());
    EXPECT_OK(job.publish(key, std::as_bytes(std::span("value"))));
    EXPECT_EQ(job.publish(key, {}).code(), Code::kAlreadyExists);
    EXPECT_EQ(get(job.lookup("key of 1", kTimeout)).size(), sizeof "value");
    EXPECT_NE(job.explain(Rank(1)).find("shm"), std::string::npos);
  });
}

TEST(CppJob, RefusesWrongSettings) {
  const auto unknown = Job::in_process(1, {.settings = {{"DUNLIN_NO_SUCH_SETTING", "1"}}});
  EXPECT_EQ(unknown.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Job::in_process(0).status().code(), Code::kInvalidArgument);
}

TEST(CppJob, WaitsUntilReadyOrNamesThePeer) {
  run_ranks(2, [](Job& job) {
    int polls = 0;
    const auto ready = [&] { return ++polls > 3 ? Status::ok() : Status::busy(); };
    EXPECT_OK(job.wait(ready, Rank(), "a number", kTimeout));
    const Rank peer(1 - job.rank().value());
    const Status late = job.wait([] { return Status::busy(); }, peer, "a message that never comes",
                                 std::chrono::milliseconds(20));
    EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
    EXPECT_NE(late.to_string().find("a message that never comes"), std::string::npos);
  });
}

TEST(CppJob, ARankThatLeavesAtOnceIsToldToThoseThatWait) {
  auto jobs = get(Job::in_process(2));
  { const Job gone = std::move(jobs[1]); }
  const Status status = jobs[0].wait([] { return Status::busy(); }, Rank(1), "an answer", kTimeout);
  EXPECT_EQ(status.code(), Code::kPeerDead);
  EXPECT_EQ(status.peer(), Rank(1));
  EXPECT_EQ(jobs[0].check(Rank(1)).code(), Code::kPeerDead);
}

TEST(CppJob, ObjectsMayOutliveTheirJob) {
  auto jobs = get(Job::in_process(1));
  const Memory memory = get(Memory::allocate(jobs[0], 100));
  jobs.clear();
  std::memset(memory.data(), 1, memory.size());
  EXPECT_GE(memory.size(), 100U);
}

TEST(CppVersion, IsThatOfTheHeaders) {
  const std::string version = dunlin::version();
  EXPECT_EQ(version, std::to_string(DUNLIN_VERSION_MAJOR) + "." +
                         std::to_string(DUNLIN_VERSION_MINOR) + "." +
                         std::to_string(DUNLIN_VERSION_PATCH));
}

TEST(CppMemory, ChecksBounds) {
  run_ranks(1, [](Job& job) {
    const Memory memory = get(Memory::allocate(job, 4096));
    EXPECT_EQ(memory.as<std::uint32_t>()[17], 0U);
    const auto slice = get(memory.slice(100, 50));
    EXPECT_EQ(slice.data(), memory.data() + 100);
    EXPECT_EQ(get(slice.slice(50, 0)).size(), 0U);
    EXPECT_EQ(slice.slice(1, 50).status().code(), Code::kOutOfRange);
    EXPECT_EQ(memory.slice(memory.size(), 1).status().code(), Code::kOutOfRange);
    EXPECT_EQ(memory.slice(1, ~std::size_t{0}).status().code(), Code::kOutOfRange);
    std::vector<std::byte> own(100);
    EXPECT_EQ(get(Memory::wrap(job, own.data(), own.size())).data(), own.data());
  });
}

// Rank 0's memory is written, notified, read and added to by rank 1.
TEST(CppLane, PutsNotifiesGetsAndAdds) {
  run_ranks(2, [](Job& job) {
    const Memory memory = get(Memory::allocate(job, 4096));
    auto cells = get(dunlin::NotificationCells::allocate(job, 2));
    EXPECT_EQ(cells.size(), 2U);
    const dunlin::NotificationId cell = cells.id(1);
    EXPECT_OK(memory.share("memory"));
    if (job.rank() == Rank(0)) {
      EXPECT_OK(job.publish("cell", std::as_bytes(std::span(&cell, 1))));
      EXPECT_OK(cells.wait(1, 7, Rank(1), kTimeout));
      const dunlin::Notification arrived = cells.read(1);
      EXPECT_EQ(arrived.sequence, 7U);
      EXPECT_EQ(arrived.tag, 11U);
      EXPECT_EQ(arrived.length, 13U);
      ASSERT_EQ(arrived.inline_data.size(), 3U);
      EXPECT_EQ(std::memcmp(arrived.inline_data.data(), "abc", 3), 0);
      EXPECT_EQ(memory.data()[64], std::byte{5});
      EXPECT_EQ(cells.sequence(0), 0U);
    } else {
      const RemoteMemory remote = get(RemoteMemory::open(job, Rank(0), "memory", kTimeout));
      EXPECT_EQ(remote.peer(), Rank(0));
      EXPECT_EQ(remote.size(), memory.size());
      EXPECT_NE(remote.mapped(), nullptr);
      EXPECT_EQ(remote.slice(remote.size(), 1).status().code(), Code::kOutOfRange);
      auto lane = get(dunlin::Lane::open(job, Rank(0)));
      EXPECT_EQ(lane.peer(), Rank(0));
      memory.data()[0] = std::byte{5};
      Completion put;
      EXPECT_OK(lane.put(get(memory.slice(0, 8)), get(remote.slice(64, 8)), &put));
      EXPECT_OK(lane.wait(put, kTimeout));
      Completion visible;
      EXPECT_OK(lane.flush(dunlin::Visibility::kRemote, &visible));
      EXPECT_OK(lane.wait(visible, kTimeout));
      ASSERT_TRUE(lane.has_get());
      Completion read;
      EXPECT_OK(lane.get(get(remote.slice(64, 8)), get(memory.slice(8, 8)), &read));
      EXPECT_OK(lane.wait(read, kTimeout));
      EXPECT_EQ(memory.data()[8], std::byte{5});
      ASSERT_NE(lane.atomic_scope(), dunlin::AtomicScope::kNone);
      const auto word = get(remote.slice(128, 8));
      std::uint64_t before = 1;
      Completion added;
      EXPECT_OK(lane.fetch_add(word, 20, &before, &added));
      EXPECT_OK(lane.wait(added, kTimeout));
      EXPECT_EQ(before, 0U);
      Completion swapped;
      EXPECT_OK(lane.compare_swap(word, 20, 30, &before, &swapped));
      EXPECT_OK(lane.wait(swapped, kTimeout));
      EXPECT_EQ(before, 20U);
      EXPECT_EQ(lane.fetch_add(get(remote.slice(4, 8)), 1, nullptr, nullptr).code(),
                Code::kInvalidArgument);
      EXPECT_EQ(lane.put(get(memory.slice(0, 8)), get(remote.slice(0, 9)), nullptr).code(),
                Code::kInvalidArgument);
      const dunlin::Bytes told = get(job.lookup("cell", kTimeout));
      dunlin::Notification notification{.sequence = 7, .tag = 11, .length = 13};
      std::memcpy(&notification.id, told.data(), sizeof notification.id);
      notification.inline_data = std::as_bytes(std::span("abc", 3));
      EXPECT_OK(lane.notify(notification, nullptr));
      EXPECT_EQ(job.counters(Rank(0)).atomics, 2U);
    }
    EXPECT_OK(job.barrier());
    if (job.rank() == Rank(0)) {
      EXPECT_EQ(memory.as<std::uint64_t>()[16], 30U);
    }
  });
}

TEST(CppQueues, DeliverInOrderWithinTheirCredit) {
  run_ranks(2, [](Job& job) {
    const Rank peer(1 - job.rank().value());
    dunlin::QueueOptions options{.name = "both ways", .in = {peer}, .out = {peer}};
    options.slot_bytes = 1000;
    auto queues = get(dunlin::Queues::create(job, options));
    const Memory memory = get(Memory::allocate(job, 1000));
    EXPECT_EQ(queues.try_send(peer, get(memory.slice(0, 1001)), 0, nullptr).code(),
              Code::kOutOfRange);
    EXPECT_EQ(queues.try_send_inline(job.rank(), {}, 0).code(), Code::kInvalidArgument);
    EXPECT_EQ(queues.release(peer).code(), Code::kInvalidArgument);
    EXPECT_FALSE(queues.poll(job.rank()).has_value());
    const auto payload = get(memory.slice(0, 1000));
    for (std::uint64_t tag = 1; tag <= 2; ++tag) {
      memory.data()[999] = static_cast<std::byte>(tag);
      EXPECT_OK(queues.send(peer, payload, tag, kTimeout));
    }
    EXPECT_TRUE(queues.try_send_inline(peer, {}, 3).is_busy());  // both slots are taken
    EXPECT_EQ(queues.sent(peer), 2U);
    EXPECT_OK(job.barrier());  // nobody releases a slot before both have tried
    for (std::uint64_t tag = 1; tag <= 2; ++tag) {
      const dunlin::Message message = get(queues.receive(peer, kTimeout));
      EXPECT_EQ(message.tag, tag);
      EXPECT_EQ(message.sequence, tag);
      ASSERT_EQ(message.data.size(), 1000U);
      EXPECT_EQ(message.data[999], static_cast<std::byte>(tag));
      EXPECT_OK(queues.release(peer));
      EXPECT_OK(queues.progress());
    }
    EXPECT_OK(job.barrier());
    EXPECT_EQ(queues.acknowledged(peer), 2U);
    const Status late = queues.receive(peer, std::chrono::milliseconds(10)).status();
    EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
    EXPECT_OK(job.barrier());
  });
}

TEST(CppBarrier, HoldsAllBack) {
  std::atomic<int> entered = 0;
  run_ranks(3, [&](Job& job) {
    auto barrier = get(dunlin::Barrier::create(job, "barrier"));
    for (int round = 1; round <= 5; ++round) {
      ++entered;
      EXPECT_OK(barrier.wait(kTimeout));
      EXPECT_GE(entered.load(), 3 * round);
    }
    EXPECT_OK(barrier.start());
    EXPECT_EQ(barrier.start().code(), Code::kInvalidArgument);
    EXPECT_OK(job.wait([&] { return barrier.test(); }, Rank(), "the others", kTimeout));
    EXPECT_OK(job.barrier());
  });
}

TEST(CppMutex, ExcludesRanks) {
  int counter = 0;  // protected by the mutex: ranks are threads here
  run_ranks(3, [&](Job& job) {
    auto mutex = get(dunlin::Mutex::create(job, {.name = "mutex", .owner = Rank(1)}));
    EXPECT_EQ(mutex.unlock(kTimeout).code(), Code::kInvalidArgument);
    for (int turn = 0; turn < 20; ++turn) {
      EXPECT_EQ(get(mutex.lock(kTimeout)), dunlin::Mutex::Locked::kCleanly);
      EXPECT_TRUE(mutex.is_held());
      ++counter;
      EXPECT_OK(mutex.unlock(kTimeout));
      EXPECT_FALSE(mutex.is_held());
    }
    EXPECT_OK(job.barrier());
    EXPECT_EQ(counter, 60);
    EXPECT_OK(job.barrier());
  });
}

}  // namespace
}  // namespace dunlin_test
