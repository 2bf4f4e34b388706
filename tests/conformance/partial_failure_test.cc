// Partial all-reduces over every transport whose members disagree, are late, or die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>

#include "tests/conformance/partial_support.h"

namespace dunlin::testing {
namespace {

const Duration kTimeout = std::chrono::seconds(60) * timeout_factor();

class PartialFailureTest : public OverPeers {};

// Rank 2 makes another call. All ranks find out, and go on together.
TEST_P(PartialFailureTest, Disagreement) {
  run(3, [](Fabric& fabric) {
    const auto partial = make_partial(fabric);
    const bool is_wrong = fabric.rank() == Rank(2);
    std::vector<double> model(1000, fabric.rank().value());
    const std::span<double> all(model);
    const Members everybody = ranks({0, 1, 2});
    std::uint64_t number = 0;
    const auto expect_refusal = [&](const PartialCall& call, const char* what) {
      const Status status = partial->run(call);
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
      ASSERT_TRUE(status.peer().has_value()) << status.to_string();
      // Two ranks differ from the third one. Either of them may be heard first.
      EXPECT_NE(*status.peer(), fabric.rank()) << status.to_string();
      if (!is_wrong) {
        EXPECT_THAT(status.to_string(), ::testing::HasSubstr("rank 2"));
      }
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(what));
      // Nothing was averaged.
      EXPECT_THAT(model, ::testing::Each(fabric.rank().value()));
    };
    const std::string name = "partial all-reduce";
    expect_refusal(call_on(++number, everybody, all.first(is_wrong ? 999 : 1000)), name.c_str());
    PartialCall call = call_on(++number, everybody, all.first(500));
    if (is_wrong) call.reduction.type = DataType::kFloat32;
    expect_refusal(call, name.c_str());
    call = call_on(++number, everybody, all);
    if (is_wrong) call.reduction.op = ReduceOp::kSum;
    expect_refusal(call, name.c_str());
    call = call_on(++number, everybody, all);
    call.label = is_wrong ? "gradients" : "models";
    expect_refusal(call, name.c_str());
    call = call_on(++number, everybody, all.first(is_wrong ? 0 : 1));
    expect_refusal(call, name.c_str());
    EXPECT_EQ(partial->statistics().failures, number);

    const Status status = partial->run(call_on(++number, everybody, all));
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_THAT(model, ::testing::Each(1.0));
    sync(fabric, "done");
  });
}

TEST_P(PartialFailureTest, OtherGroupsUnderOneNumber) {
  run(3, [](Fabric& fabric) {
    const auto partial = make_partial(fabric);
    const int self = fabric.rank().value();
    std::vector<double> model(1000, self);
    const std::span<double> all(model);
    // Rank 0 does not know of rank 2.
    const Status status =
        partial->run(call_on(1, self == 0 ? ranks({0, 1}) : ranks({0, 1, 2}), all));
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_EQ(status.peer(), self == 0 ? Rank(1) : Rank(0)) << status.to_string();
    // Rank 1 leaves number 2 out.
    if (self == 0) {
      const Status skipped = partial->run(call_on(2, ranks({0, 1}), all));
      EXPECT_EQ(skipped.code(), Code::kInvalidArgument) << skipped.to_string();
      EXPECT_EQ(skipped.peer(), Rank(1));
      EXPECT_THAT(std::string(skipped.message()), ::testing::HasSubstr("has gone on"));
    }
    const Status good = partial->run(call_on(3, ranks({0, 1, 2}), all));
    EXPECT_TRUE(good.is_ok()) << good.to_string();
    EXPECT_THAT(model, ::testing::Each(1.0));
    sync(fabric, "done");
  });
}

// Members of failed operations end them, too. So the memory that they could write to is used again.
TEST_P(PartialFailureTest, FailuresKeepNoMemory) {
  run(3, [](Fabric& fabric) {
    constexpr std::uint64_t kFailures = 30;
    const auto partial = make_partial(fabric);
    const std::size_t count = fabric.rank() == Rank(2) ? 999 : 1000;
    const auto run_on_fresh_memory = [&](std::uint64_t number, std::size_t elements) {
      const auto input = partial->allocate(1000 * sizeof(double)).value();
      const auto output = partial->allocate(1000 * sizeof(double)).value();
      EXPECT_THAT(input, ::testing::Each(std::byte{0}));
      PartialCall call = call_on(number, ranks({0, 1, 2}),
                                 std::span(reinterpret_cast<double*>(input.data()), elements));
      std::ranges::fill(std::span(reinterpret_cast<double*>(input.data()), elements), 1.0);
      call.output = output.data();
      Status status = partial->run(call);
      EXPECT_TRUE(partial->free(input).is_ok());
      EXPECT_TRUE(partial->free(output).is_ok());
      return status;
    };
    for (std::uint64_t number = 1; number <= kFailures; ++number) {
      const Status status = run_on_fresh_memory(number, count);
      ASSERT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    }
    // A rank greets a peer only after that has ended all former operations.
    const Status status = run_on_fresh_memory(kFailures + 1, 1000);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    partial->progress();
    EXPECT_EQ(partial->statistics().failures, kFailures);
    EXPECT_EQ(partial->statistics().unsettled, 0u);
    // Each peer may have held the scratch, the input and the output of one operation.
    EXPECT_LE(partial->statistics().windows, 9u);
    sync(fabric, "done");
  });
}

// Rank 2 computes for longer than the others wait.
TEST_P(PartialFailureTest, AMemberThatComesTooLate) {
  run(3, [](Fabric& fabric) {
    const auto partial = make_partial(fabric);
    const int self = fabric.rank().value();
    std::vector<double> model(1000, self);
    const std::span<double> all(model);
    const Members everybody = ranks({0, 1, 2});
    const auto expect_late = [&](const Status& status) {
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
      EXPECT_EQ(status.peer(), Rank(2)) << status.to_string();
      EXPECT_THAT(model, ::testing::Each(self));
    };
    sync(fabric, "made");
    if (self < 2) {
      auto request = partial->start(call_on(1, everybody, all)).value();
      // An operation behind it in the queue, which is aborted before its turn.
      auto behind = partial->start(call_on(2, ranks({0, 1}), all)).value();
      if (self == 0) {
        EXPECT_EQ(partial->wait(behind, std::chrono::milliseconds(50)).code(),
                  Code::kDeadlineExceeded);
        // Its caller has the outcome, though it is still in the queue.
        EXPECT_EQ(partial->wait(behind, std::chrono::milliseconds(1)).code(), Code::kNotFound);
        EXPECT_EQ(partial->test(behind).code(), Code::kNotFound);
        EXPECT_TRUE(partial->awaited(behind).empty());
      }
      if (self == 0) {
        // It has met both, and rank 1 has made the same call: rank 2 alone is waited for.
        ASSERT_TRUE(progress_until(fabric, [&] {
          EXPECT_TRUE(partial->test(request).is_busy());
          const auto awaited = partial->awaited(request);
          return partial->statistics().peers == 2 && awaited.size() == 1 &&
                 awaited[0].peer == Rank(2);
        }));
      }
      // Rank 1 hears of it from rank 0.
      expect_late(partial->wait(request, self == 0 ? std::chrono::milliseconds(100) : kTimeout));
      if (self == 1) {
        const Status status = partial->wait(behind, kTimeout);
        EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
      }
      ASSERT_TRUE(partial->run(call_on(3, ranks({0, 1}), all)).is_ok());
      EXPECT_THAT(model, ::testing::Each(0.5));
    }
    sync(fabric, "the others have gone on");
    if (self == 2) {
      const Status status = partial->run(call_on(1, everybody, all));
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
      EXPECT_TRUE(status.peer().has_value());
    }
    const Status together = partial->run(call_on(4, everybody, all));
    ASSERT_TRUE(together.is_ok()) << together.to_string();
    EXPECT_THAT(model, ::testing::Each(::testing::DoubleEq(1.0)));
    sync(fabric, "done");
  });
}

// Rank 0 aborts after its part, and changes its input, which it should not. If rank 1 reads that in
// rank 0's own memory, it notices.
TEST_P(PartialFailureTest, AnInputThatIsTouchedAfterAnError) {
  run(2, [](Fabric& fabric) {
    const auto partial = make_partial(fabric);
    const int self = fabric.rank().value();
    const std::size_t count = std::size_t{1} << 15;
    const auto memory = partial->allocate(2 * count * sizeof(double)).value();
    const std::span<double> input(reinterpret_cast<double*>(memory.data()), count);
    const std::span<double> output(input.data() + count, count);
    std::ranges::fill(input, self);
    PartialCall call = call_on(1, ranks({0, 1}), input);
    call.output = output.data();
    ASSERT_TRUE(partial->run(call).is_ok());
    EXPECT_THAT(output, ::testing::Each(0.5));
    sync(fabric, "both have met");

    call.number = 2;
    std::optional<PartialRequest> request;
    if (self == 0) request = partial->start(call).value();
    sync(fabric, "rank 0 has begun");
    if (self == 1) request = partial->start(call).value();
    sync(fabric, "rank 1 has begun");
    if (self == 0) {
      const Status status = partial->wait(*request, std::chrono::milliseconds(50));
      const bool is_mapped = fabric.transport_of(Rank(1)) == "shm";
      if (status.is_error() && is_mapped) std::ranges::fill(input, -1e9);
    }
    sync(fabric, "rank 0 has ended");
    if (self == 1) {
      const Status status = partial->wait(*request, kTimeout);
      if (status.is_ok()) {
        EXPECT_THAT(output, ::testing::Each(0.5));
      } else {
        EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
      }
    }
    sync(fabric, "done");
  });
}

// Rank 2 sets up for longer than rank 0 waits. Rank 1, which still looks it up, hears of the abort.
TEST_P(PartialFailureTest, AMemberThatIsNotThereYet) {
  run(3, [](Fabric& fabric) {
    const int self = fabric.rank().value();
    std::vector<double> model(1000, self);
    const std::span<double> all(model);
    const Members everybody = ranks({0, 1, 2});
    std::unique_ptr<PartialAllReduce> partial;
    if (self < 2) {
      partial = make_partial(fabric);
      ASSERT_TRUE(partial->run(call_on(1, ranks({0, 1}), all)).is_ok());
      const auto request = partial->start(call_on(2, everybody, all)).value();
      // Rank 0 and rank 1 have met.
      const auto awaited = partial->awaited(request);
      ASSERT_EQ(awaited.size(), 1u);
      EXPECT_EQ(awaited[0].peer, Rank(2));
      const Duration timeout = self == 0 ? std::chrono::milliseconds(100) : kTimeout;
      const Status status = partial->wait(request, timeout);
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
      EXPECT_EQ(status.peer(), Rank(2)) << status.to_string();
      if (self == 1) {
        EXPECT_THAT(std::string(status.message()),
                    ::testing::HasSubstr("rank 0 has aborted it on account of rank 2"));
      }
    }
    sync(fabric, "the others have aborted");
    if (self == 2) {
      partial = make_partial(fabric);
      const Status status = partial->run(call_on(2, everybody, all));
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
    }
    const Status together = partial->run(call_on(3, everybody, all));
    ASSERT_TRUE(together.is_ok()) << together.to_string();
    EXPECT_THAT(model, ::testing::Each(::testing::DoubleEq(1.0)));
    sync(fabric, "done");
  });
}

// Rank 3 dies in the middle of an operation.
TEST(PeerDeathPartial, EndsItsGroupsOnly) {
  run_ranks({.kind = PeerKind::kProcesses, .size = 4, .killed = {3}, .configure = {}},
            [](Fabric& fabric) {
              const auto partial = make_partial(fabric);
              const int self = fabric.rank().value();
              const auto memory = partial->allocate(std::size_t{3} << 20).value();
              const std::size_t count = std::size_t{1} << 17;
              const std::span<double> input(reinterpret_cast<double*>(memory.data()), count);
              const std::span<double> output(input.data() + count, count);
              std::ranges::fill(input, self);
              const Members everybody = ranks({0, 1, 2, 3});
              PartialCall call = call_on(1, everybody, input);
              call.output = output.data();
              ASSERT_TRUE(partial->run(call).is_ok());
              EXPECT_THAT(output, ::testing::Each(1.5));
              call.number = 2;
              call.members = ranks({0, 1, 3});
              if (self == 3) {
                (void)partial->start(call);
                kill(getpid(), SIGKILL);
              }
              if (self < 2) {
                const Status status = partial->run(call);
                if (status.is_ok()) {  // it died after its part was done
                  EXPECT_THAT(output, ::testing::Each(::testing::DoubleEq(4.0 / 3)));
                } else {
                  EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
                  EXPECT_EQ(status.peer(), Rank(3)) << status.to_string();
                }
                EXPECT_THAT(input, ::testing::Each(self));
              }
              call.number = 3;
              call.members = ranks({0, 1, 2});
              const auto other = partial->allocate(count * sizeof(double)).value();
              const std::span<double> fresh(reinterpret_cast<double*>(other.data()), count);
              call.output = fresh.data();
              const Status status = partial->run(call);
              ASSERT_TRUE(status.is_ok()) << status.to_string();
              EXPECT_THAT(fresh, ::testing::Each(1.0));
              // What the dead rank could write to is used again, where its writes are known to have
              // landed.
              const bool is_known = fabric.transport_of(Rank(3)) == "shm";
              EXPECT_TRUE(progress_until(fabric, [&] {
                partial->progress();
                return partial->statistics().unsettled <= (is_known ? 0u : 1u);
              }));
              // A rank that is known to be dead is not waited for.
              call.number = 4;
              call.members = everybody;
              EXPECT_EQ(partial->run(call).code(), Code::kPeerDead);
              call.number = 5;
              call.members = ranks({0, 1, 2});
              EXPECT_TRUE(partial->run(call).is_ok());
            });
}

INSTANTIATE_TEST_SUITE_P(Peers, PartialFailureTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
