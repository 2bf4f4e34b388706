#include "transports/verbs/path/send_window.h"

#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {

SendWindow::SendWindow(std::uint64_t depth)
    : depth_(depth), signal_every_(std::clamp<std::uint64_t>(depth / 4, 1, kSignalEvery)) {}

void SendWindow::take_credit(std::uint32_t told) {
  const std::uint32_t more = (told - static_cast<std::uint32_t>(taken_)) & ~Credit::kAsks;
  if (more <= on_the_way()) taken_ += more;
}

bool SendWindow::can_resume(const Answer& answer) const {
  return answer.taken >= std::max(taken_, arrived_) && answer.taken <= notified_;
}

void SendWindow::resume(const Answer& answer) {
  mailbox_ = answer;
  returned_ = last_signaled_ = requested_;
  notified_ = taken_ = answer.taken;
}

}  // namespace dunlin::transport::verbs
