// BackgroundSteps: an operation that takes steps in its owner's test(), and also whenever this
// process waits for something else. Without that, peers would wait for a rank that has started an
// operation and now waits for another one. Owner thread of the fabric only.
#pragma once

#include <functional>
#include <utility>

#include "runtime/status.h"
#include "runtime/within.h"
#include "transports/fabric.h"

namespace dunlin::collective {

class BackgroundSteps {
 public:
  // `step` never blocks, and neither calls the bootstrap nor progresses the fabric. It goes as far
  // as it can and returns kBusy, or the outcome of the operation. The owner calls `step` nowhere
  // else, and destroys this object before what `step` uses.
  BackgroundSteps(transport::Fabric& fabric, std::function<Status()> step)
      : step_(std::move(step)), task_(fabric, [this] {
          if (!is_awaited_) advance();
        }) {}

  // From now on an operation is in progress.
  void begin() { outcome_ = Status::busy(); }
  // Advances the operation. kBusy, or the outcome of the last operation; OK before the first one.
  Status test() {
    advance();
    return outcome_;
  }
  // For a wait that calls test() all the time: until its end, only test() advances the operation.
  [[nodiscard]] Within await() { return Within(is_awaited_); }
  // Ends the operation, whose memory is the caller's again.
  void stop(Status outcome) { outcome_ = std::move(outcome); }

 private:
  void advance() {
    if (outcome_.is_busy()) outcome_ = step_();
  }

  std::function<Status()> step_;
  Status outcome_;
  bool is_awaited_ = false;
  transport::Fabric::Task task_;
};

}  // namespace dunlin::collective
