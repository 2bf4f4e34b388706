#include "bindings/session/whole_job_reduce.h"

#include <fmt/format.h>

#include "bindings/session/agreement.h"

namespace dunlin::binding {

using collective::MemberWatch;
using transport::Awaited;

Status WholeJobReduce::check_open() const {
  if (is_open()) return Status::ok();
  return {Code::kClosed, title_ + " was freed"};
}

Status WholeJobReduce::start(const std::function<Status()>& begin) {
  if (is_reducing_)
    return {Code::kInvalidArgument, "starts a reduce while the last one is in progress"};
  DUNLIN_TRY(failure_);
  began_ = fabric().clock().now();
  // Reduces that never have to wait find dead ranks here.
  DUNLIN_TRY(keep(check_members()));
  DUNLIN_TRY(keep(begin()));
  is_reducing_ = true;
  return Status::ok();
}

Status WholeJobReduce::test(const std::function<Status()>& advance) {
  if (!outcome_) {
    Status status = outcome_of(advance);
    if (status.is_busy()) return status;
    outcome_ = std::move(status);
  }
  if (uses_memory()) return Status::busy();
  is_reducing_ = false;
  Status outcome = *std::move(outcome_);
  outcome_.reset();
  return keep(std::move(outcome));
}

Status WholeJobReduce::outcome_of(const std::function<Status()>& advance) {
  Status status = unexplained_.is_error() ? unexplained_ : advance();
  if (!status.is_ok()) status = explain(std::move(status));
  if (const Status left = status.is_busy() ? check_awaited() : Status::ok(); left.is_error()) {
    // It may have sent its part before it left.
    status = advance();
    if (status.is_busy()) status = left;
  }
  return status;
}

void WholeJobReduce::give_up() {
  if (!std::exchange(is_reducing_, false)) return;
  outcome_.reset();
  release_memory();
  if (failure_.is_error()) return;
  fail({Code::kClosed,
        "a reduce has failed or was given up, so the ranks' data no longer match: make another "
        "object"});
}

Status WholeJobReduce::check_awaited() {
  const PeerTable& peers = fabric().peers();
  if (const std::uint64_t version = peers.version(); version != seen_) {
    seen_ = version;
    is_anybody_gone_ = peers.is_anybody_gone();
  }
  if (!is_anybody_gone_) return Status::ok();
  for (const Awaited& wait : awaited()) {
    Status status = peers.check(wait.peer);
    if (status.is_error()) return std::move(status).with_context("waiting for " + wait.what);
  }
  return Status::ok();
}

Status WholeJobReduce::explain(Status status) {
  DUNLIN_TRY(check_members());
  if (!MemberWatch::may_follow_death(status)) return status;
  const TimePoint now = fabric().clock().now();
  if (!unexplained_.is_error()) {
    unexplained_ = std::move(status);
    unexplained_since_ = now;
  }
  return now - unexplained_since_ > kNoticeTime ? unexplained_ : Status::busy();
}

Status WholeJobReduce::Operation::test() {
  if (is_over()) return outcome();
  if (!reduce_->is_open()) return closed();
  Status status = reduce_->test(advance_);
  if (status.is_busy()) return status;
  is_begun_ = false;
  // Ends it also after a timeout, after which other operations would continue.
  finish(status);
  return status;
}

Session::Make reduce_maker(std::shared_ptr<WholeJobReduce> reduce, std::string name,
                           std::function<Status()> begin, std::function<Status()> advance) {
  return [=](transport::Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    DUNLIN_TRY(reduce->check_open());
    auto operation = std::make_shared<WholeJobReduce::Operation>(reduce, advance);
    Status status = operation->begin(begin);
    if (!status.is_ok()) return std::move(status).with_context(fmt::format("'{}'", name));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  };
}

Status free_together(Session& session, WholeJobReduce& reduce,
                     const Session::Interrupt& interrupt) {
  const std::string what = "freeing " + reduce.title();
  Status own;
  DUNLIN_TRY(with_open(session, reduce, [&](WholeJobReduce& open) {
    if (open.is_reducing()) own = {Code::kInvalidArgument, what + ": a reduce is in progress"};
    return Status::ok();
  }));
  Status status = agree(session, std::move(own), what, {}, interrupt);
  if (status.is_ok() || status.code() == Code::kPeerDead) session.detach(reduce);
  return status;
}

}  // namespace dunlin::binding
