// CollectiveOperation: a communicator's operation as the runtime keeps it (runtime.h). Under the
// runtime's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "collectives/bindings/runtime.h"

namespace dunlin::binding {

class CollectiveOperation final : public Operation {
 public:
  CollectiveOperation(CommunicatorHandle slot, collective::Request request)
      : slot_(std::move(slot)), request_(request) {}

  Status test() override {
    DUNLIN_TRY(check());
    Status status = slot_->communicator->test(request_);
    if (status.code() == Code::kPeerDead) slot_->failure = status;
    return status;
  }

  Status wait(Duration timeout, const std::function<Status()>& pause) override {
    DUNLIN_TRY(check());
    // Another operation of the communicator may learn of a death during the pause, and tell once.
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
  collective::Request request_;
};

}  // namespace dunlin::binding
