// CollectiveOperation: an operation of a communicator, as the session (session.h) keeps it.
// Posting: waits for room in a communicator and starts a call there. Both need the session's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "bindings/session/session.h"

namespace dunlin::binding {

class CollectiveOperation final : public SessionOperation {
 public:
  CollectiveOperation(CommunicatorHandle slot, collective::CollectiveRequest request)
      : slot_(std::move(slot)), request_(request) {}

  Status test() override {
    DUNLIN_TRY(check());
    Status status = slot_->communicator->test(request_);
    if (status.code() == Code::kPeerDead) slot_->failure = status;
    return status;
  }

  Status wait(Duration timeout, const std::function<Status()>& pause) override {
    DUNLIN_TRY(check());
    // A death is reported once, maybe to another operation of the communicator during the pause.
    std::function<Status()> watchful;
    if (pause) {
      watchful = [&] {
        DUNLIN_TRY(pause());
        return slot_->failure;
      };
    }
    Status status = slot_->communicator->wait(request_, timeout, watchful);
    if (status.code() == Code::kPeerDead) slot_->failure = status;
    return status;
  }

  bool uses(const CommunicatorSlot& slot) const override { return &slot == slot_.get(); }

 private:
  Status check() const { return slot_->communicator ? slot_->failure : closed(); }

  CommunicatorHandle slot_;
  collective::CollectiveRequest request_;
};

// It is over when the call has been started, or when it can't be.
class Posting final : public SessionOperation {
 public:
  Posting(CommunicatorHandle slot, const collective::Call& call)
      : slot_(std::move(slot)), call_(call) {}

  Status test() override {
    if (is_over()) return outcome();
    if (!slot_->communicator) return closed();
    DUNLIN_TRY(slot_->failure);
    DUNLIN_TRY(slot_->missed);
    // Room comes from the oldest calls when they end.
    slot_->communicator->progress();
    auto request = slot_->communicator->start(call_);
    if (!request) return std::move(request).status();
    request_ = *request;
    finish(Status::ok());  // so that it isn't started twice
    return Status::ok();
  }

  Status wait(Duration timeout, const std::function<Status()>& pause) override {
    const auto step = [&]() -> Status {
      Status status = test();
      if (!status.is_busy() || !pause) return status;
      DUNLIN_TRY(pause());
      return test();
    };
    const auto awaited = [&] {
      return slot_->communicator ? slot_->communicator->awaited()
                                 : std::vector<transport::Awaited>();
    };
    if (!slot_->communicator) return closed();
    return slot_->communicator->fabric().wait(step, awaited, timeout);
  }

  bool uses(const CommunicatorSlot& slot) const override { return &slot == slot_.get(); }
  const collective::CollectiveRequest& request() const { return request_; }

 private:
  CommunicatorHandle slot_;
  collective::Call call_;
  collective::CollectiveRequest request_;
};

}  // namespace dunlin::binding
