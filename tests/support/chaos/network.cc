#include "tests/support/chaos/network.h"

#include "tests/support/chaos/transport.h"

namespace dunlin::testing {

transport::TransportFactory ChaosNetwork::factory() {
  return {"chaos", [this](const transport::TransportContext& context) {
            return Result<std::unique_ptr<transport::Transport>>(
                std::make_unique<ChaosTransport>(*this, context));
          }};
}

bool ChaosNetwork::step() {
  if (events_.empty()) return false;
  const Event next = events_.top();
  events_.pop();
  if (next.when > clock_.now()) clock_.set(next.when);
  next.action();
  return true;
}

void ChaosNetwork::at(TimePoint when, std::function<void()> action) {
  events_.push({when, posted_++, std::move(action)});
}

TimePoint ChaosNetwork::random_time() {
  const auto longest = options_.longest_delay.count();
  return clock_.now() + Duration(std::uniform_int_distribution<std::int64_t>(0, longest)(random_));
}

void ChaosNetwork::attach(Rank rank, transport::NotifyBoard* board) {
  boards_[rank] = board;
}

transport::NotifyBoard* ChaosNetwork::board_of(Rank rank) const {
  const auto found = boards_.find(rank);
  return found == boards_.end() ? nullptr : found->second;
}

}  // namespace dunlin::testing
