// Peers that write where they may not. The device refuses, the offending rank gets an error, and
// the victim's memory and its other lanes stay as they were. Needs RDMA devices: run in guests.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>

#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::Fabric;
using transport::LocalRegion;
using transport::Notification;
using transport::RemoteRegion;
using transport::Visibility;

constexpr std::size_t kSize = 8192;
constexpr std::uint64_t kSeed = 11;

// The beginning of a region's descriptor of the verbs transport (transports/verbs/region.cc).
struct [[gnu::packed]] Description {
  std::uint64_t id;
  std::uint64_t address;
  std::uint32_t key;
  std::uint8_t flags;
};

// The victim's region as a peer imports it with a wrong descriptor.
std::unique_ptr<RemoteRegion> forge(Fabric& fabric, const std::string& name,
                                    const std::function<void(Description&)>& change) {
  const auto timeout_for_both = timeout_factor() * std::chrono::seconds(10);
  Bytes whole = fabric.bootstrap().lookup(name + "/whole", timeout_for_both).value();
  const Bytes own = fabric.bootstrap().lookup(name + "/verbs", timeout_for_both).value();
  const auto place = std::search(whole.begin(), whole.end(), own.begin(), own.end());
  EXPECT_TRUE(place != whole.end());
  Description description;
  EXPECT_GE(own.size(), sizeof description);
  std::memcpy(&description, own.data(), sizeof description);
  change(description);
  std::memcpy(&*place, &description, sizeof description);
  return fabric.import_region(Rank(1), whole).value();
}

void publish(Fabric& fabric, const std::string& name, const LocalRegion& region) {
  ASSERT_TRUE(fabric.bootstrap().publish(name + "/whole", region.descriptor()).is_ok());
  ASSERT_TRUE(fabric.bootstrap().publish(name + "/verbs", region.at(0)->descriptor()).is_ok());
}

// Rank 0 offends, rank 1 is the victim, rank 2 an honest peer of it.
class VerbsFaultTest : public ::testing::Test {
 protected:
  void run(const std::function<void(Description&)>& change) {
    run_ranks({.kind = PeerKind::kProcesses, .size = 3, .killed = {}, .configure = {}},
              [&](Fabric& fabric) {
                Exposed memory(fabric, "honest", kSize, 3);
                if (fabric.rank() == Rank(1)) {
                  suffer(fabric, memory);
                } else {
                  if (fabric.rank() == Rank(0)) offend(fabric, memory, change);
                  serve(fabric, memory, 1);
                  sync(fabric, "offended");
                  serve(fabric, memory, 2);
                }
                sync(fabric, "done");
              });
  }

 private:
  static void suffer(Fabric& fabric, Exposed& memory) {
    const auto target = fabric.allocate(kSize).value();
    const auto bystander = fabric.allocate(kSize).value();
    fill(target->memory()->bytes(), kSeed);
    fill(bystander->memory()->bytes(), kSeed + 1);
    publish(fabric, "target", *target);
    for (const std::uint64_t round : {1U, 2U}) {
      ASSERT_TRUE(await_cell(fabric, memory.cell(0), round));
      ASSERT_TRUE(await_cell(fabric, memory.cell(2), round));
      if (round == 1) sync(fabric, "offended");
    }
    EXPECT_TRUE(is_filled(target->memory()->bytes(), kSeed));
    EXPECT_TRUE(is_filled(bystander->memory()->bytes(), kSeed + 1));
    EXPECT_EQ(fabric.board().sequence(memory.cell(1)), 0u) << "what was refused announced itself";
  }

  static void offend(Fabric& fabric, Exposed& memory,
                     const std::function<void(Description&)>& change) {
    const auto forged = forge(fabric, "target", change);
    const auto here = memory.local().slice(0, 64).value();
    const auto there = forged->slice(0, 64).value();
    const auto word = forged->slice(56, 8).value();
    transport::Lane& lane = memory.data(1);
    const Notification announced = notification(memory.cell_at(1, 1), 1);
    const std::array<Status, 5> outcomes{
        complete(fabric, [&](Completion* c) { return lane.put(here, there, c); }),
        complete(fabric, [&](Completion* c) { return lane.put_notify(here, there, announced, c); }),
        complete(fabric, [&](Completion* c) { return lane.reads()->get(there, here, c); }),
        complete(fabric,
                 [&](Completion* c) { return lane.atomics()->fetch_add(word, 1, nullptr, c); }),
        // This put has no completion, so the flush reports its error.
        complete(fabric,
                 [&](Completion* c) {
                   EXPECT_TRUE(
                       post(fabric, [&] { return lane.put(here, there, nullptr); }).is_ok());
                   return lane.flush(Visibility::kRemote, c);
                 }),
    };
    for (const Status& status : outcomes) {
      EXPECT_EQ(status.code(), Code::kNotFound) << status.to_string();
      EXPECT_EQ(status.peer(), Rank(1));
      EXPECT_NE(status.message().find("remote access error"), std::string::npos)
          << status.to_string();
    }
  }

  // Valid operations continue, on both lanes.
  static void serve(Fabric& fabric, Exposed& memory, std::uint64_t round) {
    transport::Link& link = memory.link(1);
    const std::size_t part = 64 * fabric.rank().index();
    const Notification arrival = notification(memory.cell_at(1, fabric.rank().index()), round);
    EXPECT_TRUE(complete(fabric, [&](Completion* c) {
                  return link.control().flush(Visibility::kRemote, c);
                }).is_ok());
    EXPECT_TRUE(complete(fabric, [&](Completion* c) {
                  return link.data().put_notify(memory.local().slice(part, 64).value(),
                                                memory.at(1).slice(part, 64).value(), arrival, c);
                }).is_ok());
  }
};

TEST_F(VerbsFaultTest, AWrongKeyIsRefused) {
  run([](Description& description) { description.key ^= 0x5a5a'5a00; });
}

TEST_F(VerbsFaultTest, WhatLiesBehindTheRegionIsOutOfReach) {
  run([](Description& description) { description.address += kSize; });
}

TEST_F(VerbsFaultTest, WhatOverlapsItsEndIsOutOfReach) {
  run([](Description& description) { description.address += kSize - 32; });
}

TEST_F(VerbsFaultTest, WhatNobodyHasRegisteredIsOutOfReach) {
  run([](Description& description) { description.address = 4096; });
}

// A short message right behind a refused put, and one before it, arrive with their bytes, however
// the refusal changes the operations that are not posted yet.
TEST_F(VerbsFaultTest, WhatStandsBesideARefusedPutArrivesWhole) {
  run_ranks(
      {.kind = PeerKind::kThreads, .size = 2, .killed = {}, .configure = {}}, [](Fabric& fabric) {
        constexpr std::size_t kRounds = 20;
        constexpr std::size_t kBytes = 24;
        Exposed memory(fabric, "beside", kSize, 2 * kRounds + 1);
        const auto part = [&](auto&& region, std::size_t i) {
          return region.slice(i * kBytes, kBytes).value();
        };
        if (fabric.rank() == Rank(1)) {
          const auto target = fabric.allocate(kSize).value();
          publish(fabric, "target", *target);
          for (std::size_t i = 0; i < 2 * kRounds; ++i) {
            ASSERT_TRUE(await_cell(fabric, memory.cell(i), 1));
            EXPECT_TRUE(is_filled(memory.local().memory()->bytes().subspan(i * kBytes, kBytes), i))
                << i;
          }
          EXPECT_EQ(fabric.board().sequence(memory.cell(2 * kRounds)), 0u);
        } else {
          const auto forged = forge(
              fabric, "target", [](Description& description) { description.key ^= 0x5a5a'5a00; });
          const auto refused = forged->slice(0, 64).value();
          transport::Lane& lane = memory.data(1);
          for (std::size_t i = 0; i < 2 * kRounds; ++i)
            fill({memory.local().data() + i * kBytes, kBytes}, i);
          const auto send = [&](std::size_t i) {
            EXPECT_TRUE(post(fabric, [&] {
                          return lane.put_notify(part(memory.local(), i), part(memory.at(1), i),
                                                 notification(memory.cell_at(1, i), 1), nullptr);
                        }).is_ok());
          };
          for (std::size_t round = 0; round < kRounds; ++round) {
            Completion told;
            send(2 * round);
            EXPECT_TRUE(post(fabric, [&] {
                          return lane.put_notify(memory.local().slice(0, 64).value(), refused,
                                                 notification(memory.cell_at(1, 2 * kRounds), 1),
                                                 &told);
                        }).is_ok());
            send(2 * round + 1);
            ASSERT_TRUE(progress_until(fabric, [&] { return told.is_done(); }));
            EXPECT_EQ(told.status().code(), Code::kNotFound) << told.status().to_string();
          }
          // An error that was reported is not reported again.
          EXPECT_TRUE(complete(fabric, [&](Completion* c) {
                        return lane.flush(Visibility::kRemote, c);
                      }).is_ok());
        }
        sync(fabric, "done");
      });
}

}  // namespace
}  // namespace dunlin::testing
