#include "transports/verbs/rails/stripes.h"

#include <utility>

namespace dunlin::transport::verbs {

Stripes::Stripes(std::vector<Rail*> rails, std::uint64_t depth)
    : rails_(std::move(rails)),
      depth_(depth),
      puts_(depth),
      landed_(std::make_unique<Completion[]>(depth * rails_.size())),
      next_(rails_.size(), 0) {}

void Stripes::add(const StripedPut& put) {
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) landed(last_, rail).reset();
  puts_[last_++ % depth_] = put;
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) feed(rail);
}

// Rails proceed independently of each other: a slow one delays only the end of the put.
void Stripes::feed(std::size_t rail) {
  for (std::uint64_t& next = next_[rail]; next != last_; ++next) {
    const StripedPut& put = puts_[next % depth_];
    const Stripe stripe = stripe_of(put.size, rails_.size(), rail);
    if (stripe.size == 0) {
      landed(next, rail).fire(Status::ok());
    } else if (!rails_[rail]->post(put, stripe, landed(next, rail))) {
      return;
    }
  }
}

bool Stripes::is_over(std::uint64_t number) {
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    if (!landed(number, rail).is_done()) return false;
  }
  return true;
}

std::optional<Stripes::Outcome> Stripes::next_outcome() {
  if (is_empty()) return std::nullopt;
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) feed(rail);
  if (!is_over(first_)) return std::nullopt;
  const StripedPut& put = puts_[first_ % depth_];
  Outcome outcome{put.position, put.notifies, Status::ok()};
  for (std::size_t rail = 0; rail < rails_.size() && outcome.status.is_ok(); ++rail)
    outcome.status = landed(first_, rail).status();
  ++first_;
  return outcome;
}

}  // namespace dunlin::transport::verbs
