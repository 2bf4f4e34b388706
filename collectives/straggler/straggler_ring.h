// StragglerRing: an all-reduce around a ring that does not wait for a late rank (Zhang et al.,
// "Communication Optimization Technology of Distributed Machine Learning Network", 2024).
//
// The vector has a chunk per rank, and a chunk is cut into segments. In the reduce-scatter each
// segment travels along the ring, every rank adds its part, and the last one owns the sum. The
// all-gather takes the sums around. A rank whose predecessor is late sends its own part alone and
// forwards what arrives later. A rank that is late itself sends past its successor, and tells it.
// straggler/lateness.h decides which rank is late. straggler/stage.h decides what happens to a
// segment, and explains why nothing is lost, counted twice or waited for without end.
//
// All ranks get the owner's sum, so results are equal on all of them, bit for bit. Two runs may
// round differently: when a rank is late, parts are added in another order. They don't differ with
// LatenessMode::kNever.
//
// Bounded slots can't deadlock, at any depth. Each rank has one accumulator per segment, the
// vector's own memory. Whatever arrives for the segment can be added to it as long as the lane is
// not reading it. So a slot becomes free after local completions only, and never waits for a
// credit. (A rank that forwarded each message as it is would hold a slot while it waits for a
// credit, and so might all ranks around the ring.) While there are slots enough, parts wait in them
// and are added in one pass when all have arrived.
//
// A state machine under start() and test(); all_reduce() blocks. The vector lies in registered
// memory of this object and is the caller's between all-reduces. After an error its contents are
// undefined, and the object can only be destroyed: make another one over the survivors. Destroy it
// when all members are done with theirs (after a barrier of the bootstrap). Nothing is allocated
// between connect() and the end. Owner thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/straggler/backlog.h"
#include "collectives/straggler/edges.h"
#include "collectives/straggler/lateness.h"
#include "collectives/straggler/layout.h"
#include "collectives/straggler/stage.h"
#include "collectives/straggler/tag.h"
#include "collectives/waiting/background_steps.h"
#include "collectives/waiting/member_watch.h"
#include "transports/channel/queue.h"
#include "transports/fabric.h"

namespace dunlin::collective {

// One rank's work on what has come for one segment: receive, reduce, send.
struct RingStep {
  std::uint32_t member = 0;    // the place in the ring of the rank that does the step
  std::uint32_t chunk = 0;     // its path starts at the member with this number
  std::uint32_t position = 0;  // the rank's position on the path
  bool is_forward = false;     // the rank's own part was sent before: nothing of its own is added
};

struct StragglerOptions {
  std::string name = "straggler-ring";  // tells the rings of a job apart; the same on all ranks
  Membership membership;                // the ring, in this order
  std::size_t count = 0;                // elements of the vector
  bool is_average = false;              // divide the sum by the number of ranks
  // Longest payload of a message. Shorter messages overlap more, longer ones have less overhead.
  std::size_t segment_bytes = 128 * 1024;
  std::uint32_t depth = 4;  // receive slots per in-neighbor
  LatenessOptions lateness;
  // For simulations, where a step takes no virtual time by itself. The function is called when a
  // step begins, and returns the time that the step takes. Null: no time.
  std::function<Duration(const RingStep&)> step_time;
};

// What one all-reduce did, as this rank saw it.
struct StragglerReport {
  std::uint64_t step = 0;      // which all-reduce: 1, 2, ...
  std::uint32_t timeouts = 0;  // segments whose predecessor was late
  std::uint32_t skips = 0;     // segments sent past the successor, since this rank was late
  std::uint32_t skipped = 0;   // notices from the predecessor that it sent past this rank
  std::uint32_t forwards = 0;  // passes over parts that arrived after the own part was sent
  std::uint64_t bytes_sent = 0;
  Duration scattered{};  // from start() until the chunk that this rank owns was summed
  Duration took{};       // from start() to the end
};

template <typename T>  // float, double
class StragglerRing {
 public:
  // Collective over the members, in two steps as SlotExchange: prepare() on all, then connect().
  static Result<std::unique_ptr<StragglerRing>> prepare(transport::Fabric& fabric,
                                                        StragglerOptions options);
  Status connect();
  ~StragglerRing();
  StragglerRing(const StragglerRing&) = delete;
  StragglerRing& operator=(const StragglerRing&) = delete;

  std::span<T> data() { return data_; }
  // Keeps the memory of the vector alive after the ring is gone.
  const std::shared_ptr<MemoryRegion>& owner_of_data() const { return edges_->owner_of_data(); }

  // Begins to reduce the contents of data(), which must not be touched until test() is not busy.
  Status start();
  // kBusy until the all-reduce is done. In between the caller progresses the fabric, or waits for
  // something else on it, calls test() again at next_event() at the latest, and checks that the
  // members are alive (PeerTable). A wait for something else does not wake up at next_event(), so
  // that a late rank may be noticed later.
  Status test();
  // Ends an all-reduce that has failed for its caller, whose the vector is from now on. Only
  // destroy the object then.
  void stop(Status outcome) { steps_.stop(std::move(outcome)); }
  // When test() has something to do even if nothing arrives: a timeout. nullopt: never.
  std::optional<TimePoint> next_event() const;
  const StragglerReport& report() const { return report_; }
  // The peers that this rank waits for now, and for what.
  std::vector<transport::Awaited> awaited() const;
  // The nearest one, without an allocation.
  Rank blocker() const {
    return phase_ == Phase::kExchange && !in_.empty() ? in_.front().queue.peer() : Rank();
  }

  // start(), then test() until done. Returns the errors of MemberWatch::wait().
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
    bool is_gathered = false;  // the vector holds the result of this flow
  };
  // A message that was received and is still in its slot.
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
    RingBacklog due;  // a message's number of contributions is filled in when it is posted
  };

  StragglerRing(transport::Fabric& fabric, StragglerOptions options)
      : fabric_(fabric),
        options_(std::move(options)),
        watch_(fabric, options_.membership.members),
        lateness_(options_.lateness),
        steps_(fabric, [this] { return step(); }) {}
  Status allocate();
  Status step();
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
  std::unique_ptr<RingEdges> edges_;
  std::span<T> data_;
  std::vector<Flow> flows_;

  std::vector<Inbound> in_;    // from the predecessor, and from the rank before it
  std::vector<Outbound> out_;  // to the successor, and to the rank behind it
  std::vector<const T*> inputs_;
  std::vector<T> weights_;
  std::vector<std::size_t> in_steps_;  // flows whose step (RingStep) is not over

  Phase phase_ = Phase::kIdle;
  TimePoint began_{};
  std::size_t expected_ = 0;  // the turn of RingLayout::incoming() that is waited for
  TimePoint expected_since_{};
  std::optional<TimePoint> last_arrival_;  // of a flow's first part from the predecessor
  std::size_t gathered_ = 0;
  std::size_t owned_left_ = 0;  // segments of the chunk that this rank owns, not yet summed
  StragglerReport report_;
  BackgroundSteps steps_;
};

extern template class StragglerRing<float>;
extern template class StragglerRing<double>;

}  // namespace dunlin::collective
