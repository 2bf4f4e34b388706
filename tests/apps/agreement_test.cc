#include "apps/agreement.h"

#include <gtest/gtest.h>

#include <csignal>

#include "runtime/bytes.h"
#include "tests/support/ranks.h"

namespace dunlin {
namespace {

using testing::PeerKind;

TEST(Difference, NamesWhatDiffersAndBothValues) {
  Terms one, other;
  one.add("--loss", "hinge").add("--lambda", 0.1).add("--average", true);
  other.add("--loss", "hinge").add("--lambda", 0.25).add("--average", false);
  one.add("--target", std::optional<double>()).add("--resume", given(""));
  other.add("--target", std::optional(0.0)).add("--resume", given("path"));
  EXPECT_EQ(difference(one.text(), one.text(), "a", "b"), "");
  EXPECT_EQ(difference(one.text(), other.text(), "rank 0", "rank 2"),
            "--lambda: rank 0 has 0.1, rank 2 has 0.25; "
            "--average: rank 0 has true, rank 2 has false; "
            "--target: rank 0 has none, rank 2 has 0; "
            "--resume: rank 0 has not given, rank 2 has given");
}

TEST(Difference, EndsWhereTheNamesDiffer) {
  EXPECT_EQ(difference("command: dgd\n--step: 1\n--decay: 0\n", "command: push-sum\n--seed: 1\n",
                       "a", "b"),
            "command: a has dgd, b has push-sum; terms: a has --step, b has --seed");
  EXPECT_EQ(difference("--step: 1\n", "--step: 1\n--decay: 2\n", "a", "b"),
            "terms: a has , b has --decay");
}

TEST(Difference, OfTextsThatAreNone) {
  EXPECT_EQ(difference("", "\x1b[2J", "a", "b"), "terms: a has , b has \\x1b[2J");
  EXPECT_EQ(difference("x: 1\n", "x: \x07\n", "a", "b"), "x: a has 1, b has \\x07");
  EXPECT_EQ(difference("\n\n", "\n", "a", "b"), "terms");
  EXPECT_EQ(difference("x", "x: ", "a", "b"), "terms");
}

TEST(Agree, RanksWithTheSameTermsAgree) {
  testing::run_ranks({.size = 4, .killed = {}, .configure = {}}, [](transport::Fabric& fabric) {
    Terms terms;
    terms.add("--lambda", 1e-4);
    for (const char* const topic : {"first", "second"}) {
      const Status status = agree(fabric, topic, fabric.bootstrap().membership().members, terms,
                                  MemberDeath::kIsAnError, std::chrono::seconds(60));
      EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
  });
}

TEST(Agree, ADifferenceIsToldToAllRanks) {
  testing::run_ranks({.size = 4, .killed = {}, .configure = {}}, [](transport::Fabric& fabric) {
    Terms terms;
    terms.add("--seed", 7).add("--lambda", fabric.rank() == Rank(2) ? 0.5 : 0.25);
    const Status status = agree(fabric, "terms", fabric.bootstrap().membership().members, terms,
                                MemberDeath::kIsAnError, std::chrono::seconds(60));
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "the ranks of the job were started with different options or data: "
              "--lambda: rank 0 has 0.25, rank 2 has 0.5");
  });
}

TEST(Agree, ADeathIsToldAtOnceOrIsNoMatter) {
  for (const MemberDeath death : {MemberDeath::kIsAnError, MemberDeath::kIsNoMatter}) {
    testing::run_ranks(
        {.kind = PeerKind::kProcesses, .size = 4, .killed = {0, 2}, .configure = {}},
        [death](transport::Fabric& fabric) {
          const int rank = fabric.rank().value();
          if (rank % 2 == 0) raise(SIGKILL);
          const Status status = agree(fabric, "terms", fabric.bootstrap().membership().members,
                                      Terms(), death, std::chrono::seconds(3600));
          EXPECT_EQ(status.code(), death == MemberDeath::kIsNoMatter ? Code::kOk : Code::kPeerDead)
              << status.to_string();
          const Status differs =
              agree(fabric, "others", fabric.bootstrap().membership().members,
                    Terms().add("rank", rank), death, std::chrono::seconds(3600));
          EXPECT_EQ(differs.code(),
                    death == MemberDeath::kIsNoMatter ? Code::kInvalidArgument : Code::kPeerDead)
              << differs.to_string();
        });
  }
}

TEST(Agree, AMemberThatDiffersAndDiesIsNoMatter) {
  testing::run_ranks(
      {.kind = PeerKind::kProcesses, .size = 3, .killed = {1}, .configure = {}},
      [](transport::Fabric& fabric) {
        Bootstrap& bootstrap = fabric.bootstrap();
        if (fabric.rank() == Rank(1)) {  // before it has told its text
          EXPECT_TRUE(
              bootstrap.publish(Bootstrap::key_of("terms", fabric.rank()), as_bytes("other"))
                  .is_ok());
          EXPECT_TRUE(
              bootstrap.lookup(Bootstrap::key_of("terms/text", Rank(0)), std::chrono::seconds(60))
                  .is_ok());
          raise(SIGKILL);
        }
        const Status status =
            agree(fabric, "terms", bootstrap.membership().members, Terms().add("a", 1),
                  MemberDeath::kIsNoMatter, std::chrono::seconds(3600));
        EXPECT_TRUE(status.is_ok()) << status.to_string();
      });
}

}  // namespace
}  // namespace dunlin
