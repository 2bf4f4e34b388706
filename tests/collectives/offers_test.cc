// What members of collectives are told by others, and do not believe.
#include <gtest/gtest.h>

#include <array>

#include "collectives/communicator/offers.h"
#include "collectives/communicator/window.h"
#include "collectives/partial/wire.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::MemberOffer;
using collective::WindowOffer;
using collective::partial::AbortNotice;
using transport::Fabric;

TEST(MemberOffers, AreAsManyAsMembers) {
  Bytes three;
  for (const std::uint32_t cell : {8U, 16U, 24U}) {
    const Bytes one = MemberOffer{transport::NotifyId(cell), 1, 2}.encode();
    three.insert(three.end(), one.begin(), one.end());
  }
  const auto offers = MemberOffer::decode_all(three, 3);
  ASSERT_TRUE(offers.is_ok());
  EXPECT_EQ((*offers)[2].first_cell, transport::NotifyId(24));
  for (const std::size_t members : {2, 4})
    EXPECT_EQ(MemberOffer::decode_all(three, members).status().code(), Code::kCorrupted);
}

// Without any answer, all of them would say that they have mapped the others.
TEST(MappedAnswers, AreAsManyAsMembers) {
  const std::array answers{std::byte{1}, std::byte{0}};
  EXPECT_FALSE(collective::decode_mapped(answers, 2).value());
  EXPECT_TRUE(collective::decode_mapped(std::span(answers).first(1), 1).value());
  EXPECT_EQ(collective::decode_mapped({}, 2).status().code(), Code::kCorrupted);
}

TEST(AbortNotice, NamesAnError) {
  const auto code = [](std::uint32_t number) {
    return collective::partial::code_of(AbortNotice{-1, number});
  };
  EXPECT_EQ(code(static_cast<std::uint32_t>(Code::kPeerDead)), Code::kPeerDead);
  for (const std::uint32_t number : {0U, 1U, 200U, 256U + 9U})
    EXPECT_EQ(code(number), Code::kCorrupted) << number;
}

// Members access one another's windows without a look at the size of each region.
TEST(Windows, RefuseARegionThatIsSmallerThanItsWindow) {
  constexpr std::size_t kSize = 1 << 20;
  run_ranks({.kind = PeerKind::kThreads, .size = 2, .killed = {}, .configure = {}},
            [&](Fabric& fabric) {
              if (fabric.rank() == Rank(1)) {
                const auto region = fabric.allocate(64).value();
                const WindowOffer forged{kSize, region->descriptor()};
                const auto key = Bootstrap::key_of("communicator/forged/window 0", Rank(1));
                EXPECT_TRUE(fabric.bootstrap().publish(key, forged.encode()).is_ok());
                sync(fabric, "done");
              } else {
                collective::Windows windows(fabric, "forged", {Rank(0), Rank(1)});
                collective::Window* const window = windows.allocate(kSize).value();
                const Status status = windows.import(*window, 1, std::chrono::seconds(60));
                EXPECT_EQ(status.code(), Code::kCorrupted) << status.to_string();
                EXPECT_EQ(status.peer(), Rank(1));
                sync(fabric, "done");
              }
            });
}

}  // namespace
}  // namespace dunlin::testing
