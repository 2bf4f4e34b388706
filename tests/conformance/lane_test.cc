// What the lanes of every transport have to do, with threads and with processes as peers. The
// contract is in transports/lane.h. The transport is the configured one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>

#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;
using transport::Lane;
using transport::LocalSlice;
using transport::Notification;
using transport::NotifyCell;
using transport::NotifyId;
using transport::Visibility;

class LaneTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  void run(const RankBody& body, int size = 2) {
    run_ranks({.kind = GetParam(), .size = size, .killed = {}, .configure = {}}, body);
  }
};

// Puts [0, size) of our region over the same part of the peer's and notifies; waits for local
// reuse.
Status put_notify_all(Fabric& fabric, Exposed& memory, int to, std::size_t size,
                      const Notification& carried) {
  return complete(fabric, [&](Completion* completion) {
    return memory.data(to).put_notify(memory.local().slice(0, size).value(),
                                      memory.at(to).slice(0, size).value(), carried, completion);
  });
}

TEST_P(LaneTest, DataOfEverySizeArrivesBeforeItsNotification) {
  run([](Fabric& fabric) {
    constexpr std::size_t kLargest = 3 << 20;
    Exposed memory(fabric, "sizes", kLargest, 2);
    std::uint64_t sequence = 0;
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{40}, std::size_t{41},
          std::size_t{4096}, std::size_t{65537}, std::size_t{1} << 20, kLargest}) {
      ++sequence;
      if (fabric.rank() == Rank(0)) {
        fill(memory.local().memory()->bytes().first(size), sequence);
        const Status status =
            put_notify_all(fabric, memory, 1, size, notification(memory.cell_at(1, 0), sequence));
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        ASSERT_TRUE(await_cell(fabric, memory.cell(1), sequence)) << size;  // the peer has checked
      } else {
        ASSERT_TRUE(await_cell(fabric, memory.cell(0), sequence)) << size;
        EXPECT_TRUE(is_filled(memory.local().memory()->bytes().first(size), sequence)) << size;
        ASSERT_TRUE(post(fabric, [&] {
                      return memory.data(0).notify(notification(memory.cell_at(0, 1), sequence),
                                                   nullptr);
                    }).is_ok());
      }
    }
    if (fabric.rank() == Rank(1)) {  // the last notification may still need this rank's progress
      Completion done;
      ASSERT_TRUE(
          post(fabric, [&] { return memory.data(0).flush(Visibility::kLocal, &done); }).is_ok());
      ASSERT_TRUE(progress_until(fabric, [&] { return done.is_done(); }));
    }
  });
}

TEST_P(LaneTest, ARankReachesItself) {
  run([](Fabric& fabric) {
    const int self = fabric.rank().value();
    Exposed memory(fabric, "self", 8192, 1);
    fill(memory.local().memory()->bytes().first(4096), 7);
    Completion completion;
    ASSERT_TRUE(post(fabric, [&] {
                  return memory.data(self).put_notify(memory.local().slice(0, 4096).value(),
                                                      memory.at(self).slice(4096, 4096).value(),
                                                      notification(memory.cell(0), 1), &completion);
                }).is_ok());
    ASSERT_TRUE(await_cell(fabric, memory.cell(0), 1));
    ASSERT_TRUE(progress_until(fabric, [&] { return completion.is_done(); }));
    EXPECT_TRUE(is_filled(memory.local().memory()->bytes().subspan(4096, 4096), 7));
  });
}

TEST_P(LaneTest, WhatDoesNotFitIsAnErrorAndTouchesNothing) {
  run([](Fabric& fabric) {
    Exposed memory(fabric, "bounds", 4096, 1);
    const int peer = 1 - fabric.rank().value();
    EXPECT_EQ(memory.local().slice(4097, 0).status().code(), Code::kOutOfRange);
    EXPECT_EQ(memory.local().slice(8, SIZE_MAX).status().code(), Code::kOutOfRange);
    EXPECT_EQ(memory.at(peer).slice(4000, 97).status().code(), Code::kOutOfRange);
    EXPECT_EQ(memory.at(peer).slice(SIZE_MAX, 1).status().code(), Code::kOutOfRange);
    Lane& lane = memory.data(peer);
    const LocalSlice eight = memory.local().slice(0, 8).value();
    EXPECT_EQ(lane.put(eight, memory.at(peer).slice(0, 9).value(), nullptr).code(),
              Code::kInvalidArgument);
    // A slice of another peer's memory (here: our own) through this link.
    EXPECT_EQ(lane.put(eight, memory.at(fabric.rank().value()).slice(0, 8).value(), nullptr).code(),
              Code::kInvalidArgument);
    const auto beyond = static_cast<NotifyId>(fabric.board().size());
    EXPECT_EQ(lane.notify(notification(beyond, 1), nullptr).code(), Code::kOutOfRange);
    Notification too_long = notification(memory.cell_at(peer, 0), 1);
    const std::array<std::byte, transport::kInlineBytes + 1> bytes{};
    too_long.inline_data = bytes;
    EXPECT_EQ(lane.notify(too_long, nullptr).code(), Code::kInvalidArgument);
    EXPECT_EQ(fabric.link(Rank(2)).status().code(), Code::kOutOfRange);
    sync(fabric, "looked");
    EXPECT_EQ(fabric.board().sequence(memory.cell(0)), 0u);
    EXPECT_TRUE(std::all_of(memory.local().memory()->bytes().begin(),
                            memory.local().memory()->bytes().end(),
                            [](std::byte byte) { return byte == std::byte{0}; }));
  });
}

TEST_P(LaneTest, InlineDataTravelsWithItsNotification) {
  run([](Fabric& fabric) {
    Exposed memory(fabric, "inline", 64, 2);
    for (std::uint64_t sequence = 1; sequence <= transport::kInlineBytes + 1; ++sequence) {
      const std::size_t size = sequence - 1;
      if (fabric.rank() == Rank(0)) {
        std::array<std::byte, transport::kInlineBytes> bytes{};
        fill(std::span(bytes).first(size), sequence);
        Notification carried = notification(memory.cell_at(1, 0), sequence);
        carried.tag = sequence * 3;
        carried.length = static_cast<std::uint32_t>(size);
        carried.inline_data = std::span(bytes).first(size);
        ASSERT_TRUE(post(fabric, [&] { return memory.data(1).notify(carried, nullptr); }).is_ok());
        bytes.fill(std::byte{0xff});  // was copied
        ASSERT_TRUE(await_cell(fabric, memory.cell(1), sequence));
      } else {
        ASSERT_TRUE(await_cell(fabric, memory.cell(0), sequence));
        const NotifyCell& cell = fabric.board().cell(memory.cell(0));
        EXPECT_EQ(cell.tag, sequence * 3);
        EXPECT_EQ(cell.length, size);
        ASSERT_EQ(cell.inline_size, size);
        EXPECT_TRUE(is_filled(std::span(cell.inline_data).first(size), sequence));
        Completion done;
        ASSERT_TRUE(post(fabric, [&] {
                      return memory.data(0).notify(notification(memory.cell_at(0, 1), sequence),
                                                   &done);
                    }).is_ok());
        ASSERT_TRUE(progress_until(fabric, [&] { return done.is_done(); }));
      }
    }
  });
}

// Notifications with any contents, and with sequences that grow by one or by more, share a cell: a
// transport may send the frequent ones in a shorter form.
TEST_P(LaneTest, NotificationsOfAllFormsShareACell) {
  run([](Fabric& fabric) {
    constexpr std::uint64_t kRounds = 60;
    Exposed memory(fabric, "forms", 4096, 2);
    std::array<std::byte, transport::kInlineBytes> bytes{};
    fill(bytes, 3);
    std::uint64_t sequence = 0;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::size_t size = round % 3 == 0 ? 0 : 8 * round;
      sequence += round % 7 == 6 ? std::uint64_t{1} << 20 : 1 + round % 2;
      Notification carried = notification(memory.cell_at(1, 0), sequence);
      carried.length = static_cast<std::uint32_t>(round % 5 == 4 ? 77 : round % 5 == 3 ? 0 : size);
      carried.tag = round % 4 == 3 ? round : 0;
      if (round % 11 == 10) carried.inline_data = {bytes.data(), round % bytes.size()};
      if (fabric.rank() == Rank(0)) {
        fill(memory.local().memory()->bytes().first(size), round);
        const Status status = put_notify_all(fabric, memory, 1, size, carried);
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        ASSERT_TRUE(await_cell(fabric, memory.cell(1), sequence)) << round;
        continue;
      }
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), sequence)) << round;
      const NotifyCell& cell = fabric.board().cell(memory.cell(0));
      EXPECT_EQ(cell.sequence.load(), sequence) << round;
      EXPECT_EQ(cell.tag, carried.tag) << round;
      EXPECT_EQ(cell.length, carried.length) << round;
      ASSERT_EQ(cell.inline_size, carried.inline_data.size()) << round;
      EXPECT_TRUE(std::equal(carried.inline_data.begin(), carried.inline_data.end(),
                             std::begin(cell.inline_data)));
      EXPECT_TRUE(is_filled(memory.local().memory()->bytes().first(size), round)) << round;
      ASSERT_TRUE(post(fabric, [&] {
                    return memory.data(0).notify(notification(memory.cell_at(0, 1), sequence),
                                                 nullptr);
                  }).is_ok());
    }
    sync(fabric, "done");
  });
}

// Both directions at full speed, sizes mixed so that a transport's short and long paths interleave,
// with plain puts before each notification; the receiver checks every byte that the notification
// announces.
TEST_P(LaneTest, NotificationsFollowTheirDataUnderLoad) {
  run([](Fabric& fabric) {
    constexpr std::size_t kSlot = 40'000;
    constexpr std::uint64_t kSlots = 4;
    constexpr std::uint64_t kMessages = 2000;
    Exposed memory(fabric, "load", 2 * kSlots * kSlot, 2 * kSlots);
    const int peer = 1 - fabric.rank().value();
    const auto size_of = [](std::uint64_t message) {
      return std::size_t{2} + message * 7919 % (kSlot - 2);
    };
    std::array<Completion, 2 * kSlots> completions;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    // The peer writes into slot s of the upper half; cell s announces it, cell kSlots + s
    // acknowledges it.
    const auto try_send = [&]() -> bool {
      const std::uint64_t slot = sent % kSlots;
      if (fabric.board().sequence(memory.cell(kSlots + slot)) + kSlots < sent + 1 && sent >= kSlots)
        return false;
      Completion& first = completions[2 * slot];
      Completion& second = completions[2 * slot + 1];
      if (sent >= kSlots && !(first.is_done() && second.is_done())) return false;
      first.reset();
      second.reset();
      const std::size_t size = size_of(sent);
      const std::size_t half = size / 2;
      fill(memory.local().memory()->bytes().subspan(slot * kSlot, size), sent);
      const auto from = memory.local().slice(slot * kSlot, size).value();
      const auto to = memory.at(peer).slice((kSlots + slot) * kSlot, size).value();
      EXPECT_TRUE(post(fabric, [&] {
                    return memory.data(peer).put(from.slice(0, half).value(),
                                                 to.slice(0, half).value(), &first);
                  }).is_ok());
      EXPECT_TRUE(post(fabric, [&] {
                    return memory.data(peer).put_notify(
                        from.slice(half, size - half).value(), to.slice(half, size - half).value(),
                        notification(memory.cell_at(peer, slot), sent + 1), &second);
                  }).is_ok());
      ++sent;
      return true;
    };
    const auto try_receive = [&]() -> bool {
      const std::uint64_t slot = received % kSlots;
      if (fabric.board().sequence(memory.cell(slot)) != received + 1) return false;
      const std::size_t size = size_of(received);
      EXPECT_TRUE(is_filled(memory.local().memory()->bytes().subspan((kSlots + slot) * kSlot, size),
                            received))
          << "message " << received << " of " << size << " bytes";
      ++received;
      EXPECT_TRUE(post(fabric, [&] {
                    return memory.link(peer).control().notify(
                        notification(memory.cell_at(peer, kSlots + slot), received), nullptr);
                  }).is_ok());
      return true;
    };
    ASSERT_TRUE(progress_until(fabric,
                               [&] {
                                 for (int burst = 0; burst < 100; ++burst) {
                                   const bool has_sent = sent < kMessages && try_send();
                                   const bool has_received = received < kMessages && try_receive();
                                   if (!has_sent && !has_received) break;
                                 }
                                 return ::testing::Test::HasFailure() ||
                                        (sent == kMessages && received == kMessages);
                               }))
        << sent << " sent, " << received << " received";
    Completion done;
    ASSERT_TRUE(
        post(fabric, [&] { return memory.data(peer).flush(Visibility::kRemote, &done); }).is_ok());
    ASSERT_TRUE(progress_until(fabric, [&] {
      return done.is_done() &&
             fabric.board().sequence(memory.cell(2 * kSlots - 1)) >= kMessages - kSlots;
    }));
    // The peer may need this rank's progress until it has seen all acknowledgments.
    ASSERT_TRUE(progress_until(fabric, [&] {
      return fabric.board().sequence(memory.cell(kSlots + (kMessages - 1) % kSlots)) >= kMessages;
    }));
  });
}

// Posts as much as the lane takes without ever progressing it, then progresses to the end.
TEST_P(LaneTest, AFullLaneIsBusyAndLosesNothing) {
  run([](Fabric& fabric) {
    constexpr std::size_t kOperations = 5000;
    Exposed memory(fabric, "full", kOperations * 8, 1);
    const int peer = 1 - fabric.rank().value();
    auto source = fabric.allocate(kOperations * 8).value();
    fill(source->memory()->bytes().first(kOperations * 8), static_cast<std::uint64_t>(peer) + 10);
    auto completions = std::make_unique<Completion[]>(kOperations);
    std::size_t posted = 0;
    std::size_t refused = 0;
    while (posted < kOperations) {
      const Status status =
          memory.data(peer).put(source->slice(posted * 8, 8).value(),
                                memory.at(peer).slice(posted * 8, 8).value(), &completions[posted]);
      if (status.is_busy()) {
        ++refused;
        fabric.progress();
        continue;
      }
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      ++posted;
    }
    Completion done;
    ASSERT_TRUE(post(fabric, [&] {
                  return memory.data(peer).notify(notification(memory.cell_at(peer, 0), 1), &done);
                }).is_ok());
    ASSERT_TRUE(await_cell(fabric, memory.cell(0), 1));
    ASSERT_TRUE(progress_until(fabric, [&] {
      return done.is_done() && std::all_of(&completions[0], &completions[kOperations],
                                           [](const Completion& one) { return one.is_done(); });
    }));
    EXPECT_TRUE(is_filled(memory.local().memory()->bytes().first(kOperations * 8),
                          static_cast<std::uint64_t>(fabric.rank().value()) + 10));
    Completion flushed;
    ASSERT_TRUE(post(fabric, [&] {
                  return memory.data(peer).flush(Visibility::kRemote, &flushed);
                }).is_ok());
    ASSERT_TRUE(progress_until(fabric, [&] { return flushed.is_done(); }));
    RecordProperty("refused", static_cast<int>(refused));
  });
}

TEST_P(LaneTest, RemoteFlushMeansVisible) {
  run([](Fabric& fabric) {
    Exposed memory(fabric, "flush", 1 << 20, 1);
    if (fabric.rank() == Rank(0)) {
      fill(memory.local().memory()->bytes(), 5);
      Completion flushed;
      ASSERT_TRUE(post(fabric, [&] {
                    return memory.data(1).put(memory.local().whole(), memory.at(1).whole(),
                                              nullptr);
                  }).is_ok());
      ASSERT_TRUE(post(fabric, [&] {
                    return memory.data(1).flush(Visibility::kRemote, &flushed);
                  }).is_ok());
      ASSERT_TRUE(progress_until(fabric, [&] { return flushed.is_done(); }));
      ASSERT_TRUE(flushed.status().is_ok()) << flushed.status().to_string();
      // The peer learns of it on another way than the lane.
      ASSERT_TRUE(fabric.bootstrap().publish("flushed", {}).is_ok());
    } else {
      // The bootstrap progresses the fabric while it waits, as the peer's operations may need it.
      ASSERT_TRUE(fabric.bootstrap().lookup("flushed", fabric.config().deadline).is_ok());
      EXPECT_TRUE(is_filled(memory.local().memory()->bytes(), 5));
    }
  });
}

// Completions that are outstanding at close() fire once each (a second time would end the program),
// and nothing can be posted afterwards.
TEST_P(LaneTest, CloseCompletesWhatIsOutstanding) {
  run([](Fabric& fabric) {
    constexpr std::size_t kOperations = 20;
    constexpr std::size_t kSize = 1 << 20;
    Exposed memory(fabric, "close", kOperations * kSize, 1);
    const int peer = 1 - fabric.rank().value();
    if (fabric.rank() == Rank(0)) {
      std::array<Completion, kOperations> completions;
      std::size_t posted = 0;
      for (; posted < kOperations; ++posted) {
        const Status status = memory.data(peer).put(
            memory.local().slice(posted * kSize, kSize).value(),
            memory.at(peer).slice(posted * kSize, kSize).value(), &completions[posted]);
        if (status.is_busy()) break;
        ASSERT_TRUE(status.is_ok()) << status.to_string();
      }
      memory.data(peer).close();
      for (std::size_t i = 0; i < posted; ++i) {
        EXPECT_TRUE(completions[i].is_done()) << i;
        const Code code = completions[i].status().code();
        EXPECT_TRUE(code == Code::kOk || code == Code::kClosed)
            << completions[i].status().to_string();
      }
      EXPECT_EQ(memory.data(peer).notify(notification(memory.cell_at(peer, 0), 1), nullptr).code(),
                Code::kClosed);
      // The other lane of the link goes on.
      ASSERT_TRUE(post(fabric, [&] {
                    return memory.link(peer).control().notify(
                        notification(memory.cell_at(peer, 0), 2), nullptr);
                  }).is_ok());
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), 3));
    } else {
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), 2));
      Completion done;
      ASSERT_TRUE(post(fabric, [&] {
                    return memory.link(peer).control().notify(
                        notification(memory.cell_at(peer, 0), 3), &done);
                  }).is_ok());
      ASSERT_TRUE(progress_until(fabric, [&] { return done.is_done(); }));
    }
  });
}

TEST_P(LaneTest, UnregisteredMemoryIsAnErrorAndNotACrash) {
  run([](Fabric& fabric) {
    Exposed memory(fabric, "gone", 4096, 1);
    const int peer = 1 - fabric.rank().value();
    if (fabric.rank() == Rank(1)) memory.owned().reset();
    sync(fabric, "unregistered");
    if (fabric.rank() == Rank(0)) {
      // The peer may be told some time later. Until then puts land in memory that is not used.
      Status status = Status::ok();
      ASSERT_TRUE(progress_until(fabric, [&] {
        Completion completion;
        status = memory.data(peer).put(memory.local().slice(0, 64).value(),
                                       memory.at(peer).slice(0, 64).value(), &completion);
        if (status.is_ok()) {
          EXPECT_TRUE(progress_until(fabric, [&] { return completion.is_done(); }));
          status = completion.status();
        }
        return status.is_error();
      }));
      EXPECT_EQ(status.code(), Code::kNotFound) << status.to_string();
      EXPECT_EQ(status.peer(), Rank(1));
    }
    // The peer progresses for as long as rank 0 needs.
    const auto key = std::string("seen");
    if (fabric.rank() == Rank(0)) {
      ASSERT_TRUE(fabric.bootstrap().publish(key, {}).is_ok());
    } else {
      ASSERT_TRUE(progress_until(fabric, [&] {
        return fabric.bootstrap().lookup(key, std::chrono::milliseconds(1)).is_ok();
      }));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, LaneTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
