// Stripes: large puts of a lane, cut into pieces that several queue pairs (rails) carry at the same
// time, on the same port, on others, or on other devices.
//
// Nothing orders what one rail does against another's (InfiniBand specification, volume 1, 9.5: the
// order is that of a queue pair). So a piece counts as landed only when its own rail has read
// behind it, and a put is told of only when all its pieces have landed, and all puts before it.
// Whoever announces puts, waits for that.
//
// Knows no device, so that tests run it with rails of their own. Owner thread only.
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

// A part of a put, by bytes.
struct Stripe {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

// What `rail` of `rails` carries of a put of `size` bytes: alike for all, in whole steps of
// kStripeStep, and less for the last ones, or nothing. Together they are the put.
constexpr Stripe stripe_of(std::uint64_t size, std::size_t rails, std::size_t rail) {
  const std::uint64_t steps = size / kStripeStep + (size % kStripeStep != 0 ? 1 : 0);
  const std::uint64_t share = (steps + rails - 1) / rails * kStripeStep;
  const std::uint64_t offset = std::min<std::uint64_t>(rail * share, size);
  return {offset, std::min<std::uint64_t>(share, size - offset)};
}

// The keys of one region, by port: each port registers it.
using PortKeys = std::array<std::uint32_t, kMostPorts>;

// A put as its lane hands it over.
struct StripedPut {
  std::uint64_t position = 0;  // the lane's name for it
  bool notifies = false;       // behind the bytes
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
  std::uint64_t size = 0;
  PortKeys local_keys{};
  PortKeys remote_keys{};
};

// What carries pieces.
class Rail {
 public:
  virtual ~Rail() = default;
  // Carries that part of the put; `landed` fires, later, once the peer's memory has it, or why it
  // never will. False: no room just now, and nothing has happened.
  virtual bool post(const StripedPut& put, const Stripe& stripe, Completion& landed) = 0;
};

class Stripes {
 public:
  // For up to `depth` puts at a time. The rails outlive it.
  Stripes(std::vector<Rail*> rails, std::uint64_t depth);

  bool is_empty() const { return first_ == last_; }
  // Positions come in ascending order. Hands pieces to the rails that have room.
  void add(const StripedPut& put);

  struct Outcome {
    std::uint64_t position;
    bool notifies;
    Status status;  // the first that isn't ok
  };
  // The oldest put, if all of it has landed or failed. To be called until there is none.
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
  // Numbers of puts, ever growing: first_ <= each of next_ <= last_.
  std::uint64_t first_ = 0;
  std::uint64_t last_ = 0;
  std::vector<std::uint64_t> next_;  // by rail, of which it has had no piece yet
};

}  // namespace dunlin::transport::verbs
