// Stripes: large puts of a lane, cut into pieces that several queue pairs (rails) carry at the same
// time. The rails may be on one port, on several ports, or on several devices.
//
// Operations of different rails are not ordered (InfiniBand specification, volume 1, 9.5: only a
// queue pair orders). A piece therefore counts as landed only when a READ behind it, on the same
// rail, has completed. A put is reported only when all its pieces, and all puts before it, have
// landed; the lane waits for that before it sends the put's notification.
//
// Knows no device, so that tests can run it with rails of their own. Owner thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transports/lane.h"
#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {

// A part of a put, in bytes.
struct Stripe {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

// The part that rail `rail` of `rails` carries of a put of `size` bytes. The parts are equal and
// whole multiples of kStripeStep, except that the last ones may be smaller or empty. Together they
// cover the put.
constexpr Stripe stripe_of(std::uint64_t size, std::size_t rails, std::size_t rail) {
  const std::uint64_t steps = size / kStripeStep + (size % kStripeStep != 0 ? 1 : 0);
  const std::uint64_t share = (steps + rails - 1) / rails * kStripeStep;
  const std::uint64_t offset = std::min<std::uint64_t>(rail * share, size);
  return {offset, std::min<std::uint64_t>(share, size - offset)};
}

// The keys of one region, by port. Each port registers the region.
using PortKeys = std::array<std::uint32_t, kMostPorts>;

// A put that is to be striped.
struct StripedPut {
  std::uint64_t position = 0;  // in the lane's SendRing
  bool notifies = false;       // a notification follows the bytes
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
  std::uint64_t size = 0;
  PortKeys local_keys{};
  PortKeys remote_keys{};
};

// Carries pieces of puts.
class Rail {
 public:
  virtual ~Rail() = default;
  // Carries that part of the put. `landed` fires later: when the peer's memory has the part, or
  // with the reason why it never will. Returns false, and does nothing, if there is no room now.
  virtual bool post(const StripedPut& put, const Stripe& stripe, Completion& landed) = 0;
};

class Stripes {
 public:
  // Holds up to `depth` puts at a time. The rails must outlive it.
  Stripes(std::vector<Rail*> rails, std::uint64_t depth);

  bool is_empty() const { return first_ == last_; }
  // Adds a put, and hands its pieces to the rails that have room. Positions must ascend.
  void add(const StripedPut& put);

  struct Outcome {
    std::uint64_t position;
    bool notifies;
    Status status;  // the first error, or ok
  };
  // Removes and returns the oldest put, if all of it has landed or failed. Call it until it returns
  // nothing. It also hands waiting pieces to rails that have room again.
  std::optional<Outcome> next_outcome();

 private:
  void feed(std::size_t rail);
  Completion& landed(std::uint64_t number, std::size_t rail) {
    return landed_[number % depth_ * rails_.size() + rail];
  }
  bool is_over(std::uint64_t number);

  const std::vector<Rail*> rails_;
  const std::uint64_t depth_;
  std::vector<StripedPut> puts_;          // by number
  std::unique_ptr<Completion[]> landed_;  // by number and rail
  // Numbers of puts, which only grow: first_ <= each of next_ <= last_.
  std::uint64_t first_ = 0;
  std::uint64_t last_ = 0;
  std::vector<std::uint64_t> next_;  // by rail: the first put of which it has had no piece
};

}  // namespace dunlin::transport::verbs
