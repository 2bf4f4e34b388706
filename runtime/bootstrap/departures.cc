#include "runtime/bootstrap/departures.h"

#include <algorithm>

#include "runtime/bootstrap/constants.h"

namespace dunlin::bootstrap {

Departures::Departures(int size)
    : interval_(std::min<Duration>(size * kDepartureInterval, kLongestDeparture)) {}

std::vector<std::pair<Rank, std::uint64_t>> Departures::take() {
  has_told_ = has_told_ || !pending_.empty();
  return std::exchange(pending_, {});
}

void Departures::pace(TimePoint now) {
  if (std::exchange(has_told_, false)) next_ = now + interval_;
}

}  // namespace dunlin::bootstrap
