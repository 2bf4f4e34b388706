// StragglerRing: an all-reduce around a ring that does not wait for a late rank (Zhang et al.,
// "Communication Optimization Technology of Distributed Machine Learning Network", 2024).
//
// The vector has a chunk per rank, and a chunk is cut into segments. In the reduce-scatter each
// segment goes along the ring, every rank adds its part, the last one owns the sum; the all-gather
// takes the sums around. A rank whose predecessor is late sends its own part alone and passes on
// what comes later; a rank that knows itself to be late sends past its successor, and tells it. Who
// is late, straggler/lateness.h says; what is done with a segment, and why nothing is lost, counted
// twice or waited for in vain, straggler/stage.h.
//
// The sum that the owner has is what all ranks get: results are equal on all of them, bit for bit.
// They may differ between runs in rounding, where parts meet in another order because somebody was
// late; in LatenessMode::kNever they do not.
//
// Bounded slots can't deadlock, at any depth. Each rank has one accumulator per segment, the
// vector's own memory, and whatever comes for the segment can be added to it as long as the lane is
// not reading it. So that a slot becomes free depends on nothing but local completions, never on
// credits; slots become free for ever, and so do credits. (Forwarding each message as it is would
// wait for a credit while it holds a slot, around the whole ring.) While slots are plenty, parts
// wait in them and are added in one pass when all have come.
//
// A state machine under start() and test(), with all_reduce() as the blocking edge. The vector
// lives in registered memory of this object; it is the caller's between reduces. After an error its
// contents are undefined and the object can only be destroyed: rebuild over the survivors. Destroy
// it when all members are done with theirs (a barrier of the bootstrap). Nothing allocates between
// connect() and the end. Owner thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/member_watch.h"
#include "collectives/straggler/lateness.h"
#include "collectives/straggler/layout.h"
#include "collectives/straggler/stage.h"
#include "collectives/straggler/tag.h"
#include "collectives/straggler/wire.h"
#include "transports/channel/queue.h"
#include "transports/fabric.h"

namespace dunlin::collective {

// One rank's work on what has come for one segment: receive, reduce, send.
struct RingStep {
  std::uint32_t member = 0;    // whose step: the rank's place in the ring
  std::uint32_t chunk = 0;     // its path starts at the member of this number
  std::uint32_t position = 0;  // of the rank on the path
  bool is_forward = false;     // the rank's own part is gone: nothing of its own is added
};

struct StragglerOptions {
  std::string name = "straggler-ring";  // distinguishes rings of one job; the same on all ranks
  Membership membership;                // the ring, in this order
  std::size_t count = 0;                // elements of the vector
  bool is_average = false;              // rather than the sum
  // A message's payload at most. Smaller ones overlap more, larger ones cost less each.
  std::size_t segment_bytes = 128 * 1024;
  std::uint32_t depth = 4;  // receive slots per in-neighbour
  LatenessOptions lateness;
  // For simulations: how much longer than the clock shows a step takes, asked when it begins. In
  // virtual time nothing else takes any. Null: no longer.
  std::function<Duration(const RingStep&)> step_time;
};

// What one all-reduce did, as this rank saw it.
struct StragglerReport {
  std::uint64_t step = 0;      // 1, 2, ...
  std::uint32_t timeouts = 0;  // segments whose predecessor was late
  std::uint32_t skips = 0;     // segments sent past the successor, this rank being late
  std::uint32_t skipped = 0;   // notices from the predecessor that it did so
  std::uint32_t forwards = 0;  // passes over parts that came after our own was sent
  std::uint64_t bytes_sent = 0;
  Duration scattered{};  // from start() until the chunk that this rank owns was summed
  Duration took{};       // from start() to the end
};

template <typename T>  // float, double
class StragglerRing {
 public:
  // In two steps, as SlotExchange.
  static Result<std::unique_ptr<StragglerRing>> prepare(transport::Fabric& fabric,
                                                        StragglerOptions options);
  Status connect();
  ~StragglerRing();
  StragglerRing(const StragglerRing&) = delete;
  StragglerRing& operator=(const StragglerRing&) = delete;

  std::span<T> data() { return data_; }

  // Begins to reduce the present contents, which must not be touched until it is done.
  Status start();
  // kBusy until done; the caller progresses the fabric in between, calls again at next_event() at
  // the latest, and looks to the members' life.
  Status test();
  // When test() will have something to do though nothing has come: a time-out. Nothing: never.
  std::optional<TimePoint> next_event() const;
  const StragglerReport& report() const { return report_; }
  // Who is waited for at this moment, and for what.
  std::vector<transport::Awaited> awaited() const;

  // start(), then test() until done. Errors as MemberWatch::wait.
  Result<StragglerReport> all_reduce(Duration timeout);

 private:
  enum class Phase : std::uint8_t { kIdle, kExchange, kAcknowledge };

  // One segment.
  struct Flow {
    RingStage stage;
    TimePoint step_began{};
    TimePoint step_ends{};
    bool is_in_step = false;
    bool is_late = false;      // the last step was
    bool is_gathered = false;  // the vector holds the result
  };
  // A message in its slot.
  struct Held {
    enum class State : std::uint8_t { kNew, kCounted, kDone };
    transport::Message message;
    RingTag tag;
    State state = State::kNew;
  };
  struct Inbound {
    transport::ReceiveQueue queue;
    std::vector<Held> held;  // at most `depth`, oldest first
  };
  struct Outbound {
    transport::SendQueue queue;
    std::vector<RingTag> due;  // from `next` on; which contributions go, taking off decides
    std::size_t next = 0;
    bool is_empty() const { return next == due.size(); }
  };

  StragglerRing(transport::Fabric& fabric, StragglerOptions options)
      : fabric_(fabric),
        options_(std::move(options)),
        watch_(fabric, options_.membership.members),
        lateness_(options_.lateness) {}
  Status allocate();
  std::span<T> elements(std::size_t flow) const {
    return data_.subspan(layout_.begin_of(flow), layout_.end_of(flow) - layout_.begin_of(flow));
  }

  Status receive(Inbound& edge);
  Status accept(Inbound& edge, Held& held);
  Status accept_partial(Inbound& edge, Held& held);
  Status accept_result(Held& held);
  Status fold_held(Inbound& edge);
  Status fold(std::size_t at);
  void add(std::size_t at, std::uint32_t contributions);
  void end_steps();
  void end_step(std::size_t at);
  void advance(std::size_t at);
  void gathered(std::size_t flow);
  void tell(std::size_t edge, RingTag::Kind kind, std::size_t flow);
  void pass_expected();
  void expire();
  std::optional<TimePoint> waiting_ends() const;
  Status post(Outbound& edge);
  Status release(Inbound& edge);
  bool is_exchanged() const;
  Status finish();
  Status unexpected(const Inbound& edge, const Held& held, std::string_view why) const;

  transport::Fabric& fabric_;
  StragglerOptions options_;
  MemberWatch watch_;
  Lateness lateness_;
  RingLayout layout_;
  std::unique_ptr<RingWire> wire_;
  std::span<T> data_;
  std::vector<Flow> flows_;

  std::vector<Inbound> in_;    // from the predecessor, and from the one before it
  std::vector<Outbound> out_;  // to the successor, and past it
  std::vector<const T*> inputs_;
  std::vector<T> weights_;
  std::vector<std::size_t> in_steps_;  // flows

  Phase phase_ = Phase::kIdle;
  TimePoint began_{};
  std::size_t expected_ = 0;  // turn of RingLayout::incoming(): what is waited for, and since when
  TimePoint expected_since_{};
  std::optional<TimePoint> last_arrival_;  // of a flow's first part, from the predecessor
  std::size_t gathered_ = 0;
  std::size_t owned_left_ = 0;  // of our own chunk, not summed
  StragglerReport report_;
};

extern template class StragglerRing<float>;
extern template class StragglerRing<double>;

}  // namespace dunlin::collective
