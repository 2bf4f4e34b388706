#include "runtime/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace dunlin {
namespace {

TEST(Status, OkAndBusyAreNotErrors) {
  EXPECT_TRUE(Status::ok().is_ok());
  EXPECT_TRUE(Status::busy().is_busy());
  EXPECT_FALSE(Status::busy().is_ok());
  EXPECT_FALSE(Status::busy().is_error());
  EXPECT_TRUE(Status(Code::kClosed, "gone").is_error());
}

TEST(Status, NamesOperationOriginAndPeer) {
  Status status =
      Status(Code::kPeerDead, "connection reset").with_context("put").with_peer(Rank(3));
  EXPECT_EQ(status.to_string(), "peer_dead: put: connection reset (rank 3)");
  EXPECT_EQ(status.peer(), Rank(3));
  const Status copy = status;  // NOLINT: the copy is what is tested
  EXPECT_EQ(copy.to_string(), status.to_string());
}

TEST(Status, ContextLeavesOkAlone) {
  EXPECT_TRUE(Status::ok().with_context("x").with_peer(Rank(1)).is_ok());
  EXPECT_EQ(Status::ok().with_context("x").to_string(), "ok");
}

TEST(Status, ErrnoBecomesCodeAndText) {
  const Status status = Status::from_errno("open /x", ENOENT);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(), "open /x: No such file or directory");
  EXPECT_THAT(std::string(Status::from_errno("open /x", EMFILE).message()),
              ::testing::HasSubstr("'ulimit -n' raises it"));
}

Result<int> half(int value) {
  if (value % 2 != 0) return Status(Code::kInvalidArgument, "odd");
  return value / 2;
}

Status quarter(int value, int& out) {
  DUNLIN_ASSIGN(const int first, half(value));
  DUNLIN_ASSIGN(out, half(first));
  return Status::ok();
}

TEST(Result, AssignsOrReturnsTheStatus) {
  int out = 0;
  EXPECT_TRUE(quarter(12, out).is_ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(quarter(6, out).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace dunlin
