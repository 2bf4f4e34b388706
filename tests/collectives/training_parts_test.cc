// The parts of the training methods that do not communicate: SGD, slowdown, pieces, options.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "collectives/training/method.h"
#include "collectives/training/methods/pieces.h"
#include "collectives/training/slowdown.h"

namespace dunlin::training {
namespace {

TEST(SgdTest, IsThatOfPyTorch) {
  // torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.01), w = 1, gradient 2, twice:
  // v = 2.01, w = 0.799; v = 1.809 + 2.00799, w = 0.417301.
  Sgd sgd({0.9F, 0.01F}, 3);
  std::vector<float> w = {7, 1, 7};
  const float gradient[] = {2};
  sgd.step(std::span(w).subspan(1, 1), gradient, 0.1F, 1);
  EXPECT_NEAR(w[1], 0.799, 1e-6);
  sgd.step(std::span(w).subspan(1, 1), gradient, 0.1F, 1);
  EXPECT_NEAR(w[1], 0.417301, 1e-6);
  EXPECT_NEAR(sgd.velocity()[1], 3.81699, 1e-5);
  EXPECT_EQ(sgd.velocity()[0], 0);
  EXPECT_EQ(w[0], 7);

  Sgd plain({0, 0.5F}, 1);
  EXPECT_TRUE(plain.velocity().empty());
  plain.step(std::span(w).first(1), gradient, 0.1F);
  EXPECT_NEAR(w[0], 7 - 0.1 * (2 + 3.5), 1e-6);
}

TEST(SlowdownTest, ParsesAndSaysWhatIsWrong) {
  const auto fixed = parse_slowdown("3:5");
  ASSERT_TRUE(fixed.is_ok());
  EXPECT_FALSE(fixed->is_random);
  EXPECT_EQ(fixed->rank, Rank(3));
  EXPECT_EQ(fixed->factor, 5);
  const auto random = parse_slowdown("random:2.5");
  ASSERT_TRUE(random.is_ok());
  EXPECT_TRUE(random->is_random);
  EXPECT_EQ(random->factor, 2.5);
  EXPECT_EQ(parse_slowdown("3:1e6")->factor, 1e6);
  for (const char* const wrong :
       {"", "3", ":", "3:", ":5", "-1:5", "3:-5", "3:nan", "3:inf", "3:5x", "x3:5", "3 :5",
        "random", "99999999999:1", "3:1.1e6", "random:1e300"}) {
    const auto refused = parse_slowdown(wrong);
    ASSERT_FALSE(refused.is_ok()) << wrong;
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument) << wrong;
    EXPECT_NE(refused.status().message().find('\'' + std::string(wrong) + '\''), std::string::npos)
        << refused.status().to_string();
  }
}

TEST(SlowdownTest, SleepsAsTheRulesSay) {
  const auto fixed = parse_slowdown("2:5").value();
  const Duration computed = std::chrono::milliseconds(10);
  EXPECT_EQ(Slowdown({fixed}, Rank(2), 4, 1).after(0, computed), 5 * computed);
  EXPECT_EQ(Slowdown({fixed}, Rank(1), 4, 1).after(0, computed), Duration::zero());
  EXPECT_EQ(Slowdown({}, Rank(1), 4, 1).after(0, computed), Duration::zero());

  const auto random = parse_slowdown("random:3").value();
  const Slowdown drawn({random}, Rank(1), 4, 1);
  const Slowdown again({random}, Rank(1), 4, 1);
  const Slowdown other({random}, Rank(2), 4, 1);
  int slowed = 0;
  int alike = 0;
  constexpr int kIterations = 10'000;
  for (std::uint64_t t = 0; t < kIterations; ++t) {
    const Duration sleep = drawn.after(t, computed);
    EXPECT_TRUE(sleep == Duration::zero() || sleep == 3 * computed);
    EXPECT_EQ(again.after(t, computed), sleep);
    EXPECT_EQ(again.after(t, 2 * computed), 2 * sleep);
    slowed += sleep > Duration::zero() ? 1 : 0;
    alike += sleep > Duration::zero() && other.after(t, computed) > Duration::zero() ? 1 : 0;
  }
  EXPECT_NEAR(slowed, kIterations / 4.0, 200);
  EXPECT_NEAR(alike, kIterations / 16.0, 120);  // workers are slow independently of one another
}

TEST(PiecesTest, CoverThePartFromItsEndWhateverIsReadyFirst) {
  std::mt19937 random(1);
  for (const std::size_t count : {1UL, 9UL, 10UL, 11UL, 95UL}) {
    Pieces pieces({7, count}, 10);
    std::size_t end = 7 + count;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(pieces.at(i).end(), end);
      EXPECT_LE(pieces.at(i).count, 10u);
      end = pieces.at(i).first;
    }
    EXPECT_EQ(end, 7u);
    for (int round = 0; round < 20; ++round) {
      pieces.reset();
      std::vector<std::size_t> elements(120);  // some lie outside the part
      std::iota(elements.begin(), elements.end(), std::size_t{0});
      std::shuffle(elements.begin(), elements.end(), random);
      std::vector<bool> is_ready(120);
      for (const std::size_t element : elements) {
        ASSERT_TRUE(pieces.add({element, 1}).is_ok());
        is_ready[element] = true;
        std::size_t expected = 0;
        for (; expected < pieces.size(); ++expected) {
          const ModelRange piece = pieces.at(expected);
          const auto first = is_ready.begin() + static_cast<std::ptrdiff_t>(piece.first);
          if (std::find(first, first + static_cast<std::ptrdiff_t>(piece.count), false) !=
              first + static_cast<std::ptrdiff_t>(piece.count))
            break;
        }
        ASSERT_EQ(pieces.ready(), expected);
      }
      EXPECT_EQ(pieces.add({7, 1}).code(), Code::kInvalidArgument);
    }
  }
  Pieces rest({0, 25}, 10);
  ASSERT_TRUE(rest.add({3, 4}).is_ok());
  EXPECT_EQ(rest.ready(), 0u);
  rest.add_all();
  EXPECT_EQ(rest.ready(), 3u);
}

TEST(PiecesTest, ASizeWithoutALimitMakesOnePiece) {
  const Pieces pieces({0, 25}, SIZE_MAX);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces.at(0).count, 25u);
}

TEST(PiecesTest, SharesFollowOneAnother) {
  for (const std::size_t count : {5UL, 16UL, 17UL, 1003UL}) {
    std::size_t first = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      const ModelRange share = share_of(count, 5, i);
      EXPECT_EQ(share.first, first);
      EXPECT_LE(share.count, share_of(count, 5, 0).count);
      EXPECT_GE(share.count, count / 5);
      first = share.end();
    }
    EXPECT_EQ(first, count);
  }
  EXPECT_TRUE(check_range({3, 7}, 10).is_ok());
  EXPECT_EQ(check_range({3, 8}, 10).code(), Code::kOutOfRange);
  EXPECT_EQ(check_range({11, 0}, 10).code(), Code::kOutOfRange);
  EXPECT_EQ(check_range({1, SIZE_MAX}, 10).code(), Code::kOutOfRange);
}

TEST(MethodOptionsTest, NamesGoBothWays) {
  for (const char* const name : {"all-reduce", "parameter-server", "async-parameter-server",
                                 "ad-psgd", "local-sgd", "stochastic", "partial", "straggler-ring"})
    EXPECT_STREQ(to_string(parse_method(name).value()), name);
  EXPECT_NE(parse_method("allreduce").status().message().find("all-reduce, "), std::string::npos);
}

TEST(MethodOptionsTest, WhatDoesNotSuitIsRefused) {
  MethodOptions good;
  good.count = 10;
  EXPECT_TRUE(check(good, 1).is_ok());
  const auto expect_refusal = [&](const std::function<void(MethodOptions&)>& change, int ranks,
                                  const std::string& word) {
    MethodOptions bad = good;
    change(bad);
    const Status status = check(bad, ranks);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << word;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.to_string();
  };
  expect_refusal([](auto& bad) { bad.count = 0; }, 2, "no parameters");
  expect_refusal([](auto& bad) { bad.sgd.momentum = -1; }, 2, "momentum");
  expect_refusal([](auto& bad) { bad.section_length = 0; }, 2, "section");
  expect_refusal([](auto& bad) { bad.piece_elements = 0; }, 2, "pieces");
  expect_refusal([](auto& bad) { bad.algorithm = "no-such"; }, 2, "no-such");
  const auto server = [](auto& bad) { bad.kind = MethodKind::kParameterServer; };
  expect_refusal(server, 1, "1 servers of 1 ranks");
  expect_refusal(
      [&](auto& bad) {
        server(bad);
        bad.servers = 11;
      },
      20, "share 10 parameters");
  expect_refusal(
      [](auto& bad) {
        bad.kind = MethodKind::kAdPsgd;
        bad.graph = "no-such";
      },
      4, "no-such");
  expect_refusal([](auto& bad) { bad.has_own_step = true; }, 2, "their own steps");
  expect_refusal(
      [](auto& bad) {
        bad.kind = MethodKind::kStochastic;
        bad.depth = 0;
      },
      4, "depth");
}

}  // namespace
}  // namespace dunlin::training
