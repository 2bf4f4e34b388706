#include "collectives/straggler/straggler_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/kernels/average.h"

namespace dunlin::collective {

using transport::Awaited;
using Route = RingStage::Route;

namespace {

// Indices of in_ and out_.
constexpr std::size_t kNear = 0;  // the predecessor or the successor
constexpr std::size_t kFar = 1;   // the rank beyond it

}  // namespace

template <typename T>
Result<std::unique_ptr<StragglerRing<T>>> StragglerRing<T>::prepare(transport::Fabric& fabric,
                                                                    StragglerOptions options) {
  std::unique_ptr<StragglerRing> ring(new StragglerRing(fabric, std::move(options)));
  DUNLIN_TRY(ring->allocate());
  return ring;
}

template <typename T>
Status StragglerRing<T>::allocate() {
  const auto& all = options_.membership.members;
  const auto self = std::find(all.begin(), all.end(), fabric_.rank());
  if (self == all.end()) {
    return {Code::kInvalidArgument,
            fmt::format("'{}': rank {} is not a member", options_.name, fabric_.rank().value())};
  }
  if (all.size() > RingTag::kMostRanks || options_.segment_bytes < sizeof(T)) {
    return {Code::kInvalidArgument,
            fmt::format("'{}': {} members, of {} at most; segments of {} bytes", options_.name,
                        all.size(), RingTag::kMostRanks, options_.segment_bytes)};
  }
  DUNLIN_TRY(Lateness::check(options_.lateness));
  layout_ = RingLayout(static_cast<std::uint32_t>(all.size()),
                       static_cast<std::uint32_t>(self - all.begin()), options_.count,
                       options_.segment_bytes / sizeof(T));
  flows_.resize(layout_.flows());
  DUNLIN_ASSIGN(edges_, RingEdges::prepare(fabric_,
                                           {options_.name, options_.membership, sizeof(T),
                                            options_.depth, options_.is_average},
                                           layout_));
  data_ = {reinterpret_cast<T*>(edges_->data()), options_.count};
  inputs_.reserve(2 * options_.depth);
  weights_.reserve(2 * options_.depth);
  in_steps_.reserve(flows_.size());
  return Status::ok();
}

template <typename T>
StragglerRing<T>::~StragglerRing() {
  if (edges_ && !edges_->is_done()) fabric_.keep_until_done(std::move(edges_));
}

template <typename T>
Status StragglerRing<T>::connect() {
  DUNLIN_TRY(edges_->exchange().connect());
  for (auto& edge : edges_->exchange().in()) {
    in_.push_back({transport::ReceiveQueue(edges_->exchange(), edge), {}});
    in_.back().held.reserve(options_.depth);
  }
  for (auto& edge : edges_->exchange().out()) {
    // At most three messages per flow are due at once.
    out_.push_back(
        {transport::SendQueue(edges_->exchange(), edge), RingBacklog(3 * flows_.size())});
  }
  return Status::ok();
}

template <typename T>
Status StragglerRing<T>::start() {
  if (phase_ != Phase::kIdle)
    return {Code::kInvalidArgument, "an all-reduce is started before the last one is done"};
  const std::uint64_t step = report_.step + 1;
  report_ = {};
  report_.step = step;
  began_ = expected_since_ = fabric_.clock().now();
  expected_ = 0;
  last_arrival_.reset();
  gathered_ = 0;
  owned_left_ = layout_.segments();
  phase_ = Phase::kExchange;
  edges_->reset();
  for (std::size_t at = 0; at < flows_.size(); ++at) {
    Flow& flow = flows_[at];
    flow = Flow();
    flow.stage = RingStage(layout_.position_of(at), layout_.members());
    // A vector shorter than the ring has empty flows, which are neither sent nor waited for.
    flow.is_gathered = elements(at).empty();
    if (flow.is_gathered) ++gathered_;
    if (flow.is_gathered && flow.stage.is_owner()) --owned_left_;
    // The own chunk is sent at once. A rank that is alone in the ring has its sum.
    if (!flow.is_gathered && flow.stage.position() == 0) advance(at);
  }
  steps_.begin();
  return Status::ok();
}

template <typename T>
Status StragglerRing<T>::test() {
  return steps_.test();
}

template <typename T>
Status StragglerRing<T>::step() {
  if (phase_ == Phase::kExchange) {
    for (Inbound& edge : in_) DUNLIN_TRY(receive(edge));
    for (Inbound& edge : in_) DUNLIN_TRY(fold_held(edge));
    end_steps();
    expire();
    for (Outbound& edge : out_) DUNLIN_TRY(post(edge));
    for (Inbound& edge : in_) DUNLIN_TRY(release(edge));
    if (!is_exchanged()) return Status::busy();
    phase_ = Phase::kAcknowledge;
  }
  if (phase_ == Phase::kAcknowledge) DUNLIN_TRY(finish());
  return Status::ok();
}

// Polls the edge for messages, and counts what they carry.
template <typename T>
Status StragglerRing<T>::receive(Inbound& edge) {
  while (edge.held.size() < options_.depth) {
    const auto message = edge.queue.poll();
    if (!message) break;
    edge.held.push_back({*message, RingTag::decode(message->tag)});
  }
  for (Held& held : edge.held) {
    if (held.state != Held::State::kNew) continue;
    DUNLIN_TRY(accept(edge, held));
    if (held.state == Held::State::kNew) break;  // those behind it wait as well
  }
  return Status::ok();
}

// Leaves the message in state kNew if it has to wait.
template <typename T>
Status StragglerRing<T>::accept(Inbound& edge, Held& held) {
  if (!held.tag.is_known()) return unexpected(edge, held, "of no kind");
  const auto ahead = static_cast<std::uint32_t>((held.tag.step - report_.step) % RingTag::kSteps);
  // The neighbor is done and reduces the next vector already. It sends nothing more of this one.
  if (ahead == 1) return Status::ok();
  if (ahead == RingTag::kSteps - 1 && held.tag.kind == RingTag::Kind::kSkipped) {
    held.state = Held::State::kDone;  // the message that it announced came earlier
    return Status::ok();
  }
  if (ahead != 0) return unexpected(edge, held, "of another step");
  if (held.tag.flow >= flows_.size()) return unexpected(edge, held, "of no segment");
  Flow& flow = flows_[held.tag.flow];
  if (held.tag.kind == RingTag::Kind::kSkipped) {
    held.state = Held::State::kDone;
    ++report_.skipped;
    flow.stage.release();
    pass_expected();
    advance(held.tag.flow);
    return Status::ok();
  }
  if (held.message.data.size() != elements(held.tag.flow).size_bytes())
    return unexpected(edge, held, "of another size");
  return held.tag.kind == RingTag::Kind::kPartial ? accept_partial(edge, held)
                                                  : accept_result(held);
}

template <typename T>
Status StragglerRing<T>::accept_partial(Inbound& edge, Held& held) {
  const std::size_t flow = held.tag.flow;
  // Gaps are measured between arrivals, late ones included, as these show the usual distance too.
  // The first arrival of a step is left out: it had to wait for another rank to start.
  if (&edge == &in_[kNear] && flows_[flow].stage.seen() == 0) {
    const TimePoint now = fabric_.clock().now();
    if (last_arrival_) lateness_.record_gap(now - *last_arrival_);
    last_arrival_ = now;
  }
  if (!flows_[flow].stage.arrive(held.tag.contributions))
    return unexpected(edge, held, "with more contributions than are missing");
  held.state = Held::State::kCounted;
  pass_expected();
  return Status::ok();
}

template <typename T>
Status StragglerRing<T>::accept_result(Held& held) {
  const std::size_t at = held.tag.flow;
  Flow& flow = flows_[at];
  if (flow.is_gathered || !flow.stage.has_sent() || flow.stage.accumulated() > 0)
    return unexpected(in_[kNear], held, "came before all parts were sent");
  // The own part has arrived, but its completion may not have fired yet.
  DUNLIN_ASSIGN(const bool is_free, edges_->is_free(at));
  if (!is_free) return Status::ok();
  std::memcpy(elements(at).data(), held.message.data.data(), held.message.data.size());
  held.state = Held::State::kDone;
  gathered(at);
  return Status::ok();
}

template <typename T>
Status StragglerRing<T>::fold_held(Inbound& edge) {
  for (const Held& held : edge.held) {
    if (held.state != Held::State::kCounted) continue;
    // The oldest message of a full queue is added at once, so that a slot becomes free.
    const bool is_pressing = edge.held.size() == options_.depth && &held == &edge.held.front();
    const Flow& flow = flows_[held.tag.flow];
    if (flow.is_in_step || !(is_pressing || flow.stage.should_fold())) continue;
    DUNLIN_TRY(fold(held.tag.flow));
  }
  return Status::ok();
}

// Adds all messages that are held for the flow, in one pass. Does nothing while the lane reads the
// flow's memory.
template <typename T>
Status StragglerRing<T>::fold(std::size_t at) {
  DUNLIN_ASSIGN(const bool is_free, edges_->is_free(at));
  if (!is_free) return Status::ok();
  Flow& flow = flows_[at];
  flow.step_began = fabric_.clock().now();
  const bool is_forward = flow.stage.has_sent();
  inputs_.clear();
  std::uint32_t contributions = 0;
  for (Inbound& edge : in_) {
    for (Held& held : edge.held) {
      if (held.state != Held::State::kCounted || held.tag.flow != at) continue;
      held.state = Held::State::kDone;
      inputs_.push_back(reinterpret_cast<const T*>(held.message.data.data()));
      contributions += held.tag.contributions;
    }
  }
  add(at, contributions);
  if (is_forward) ++report_.forwards;
  if (!options_.step_time) {
    end_step(at);
    return Status::ok();
  }
  flow.is_in_step = true;
  flow.step_ends = flow.step_began + options_.step_time({layout_.self(), layout_.chunk_of(at),
                                                         flow.stage.position(), is_forward});
  in_steps_.push_back(at);
  return Status::ok();
}

// Adds inputs_ to the accumulator. An average divides once, with the last of them.
template <typename T>
void StragglerRing<T>::add(std::size_t at, std::uint32_t contributions) {
  Flow& flow = flows_[at];
  const std::span<T> sum = elements(at);
  std::span<const T* const> inputs(inputs_);
  if (flow.stage.accumulated() == 0) {
    std::memcpy(sum.data(), inputs.front(), sum.size_bytes());
    inputs = inputs.subspan(1);
  }
  flow.stage.fold(contributions);
  if (inputs.empty()) return;
  if (options_.is_average && flow.stage.is_summed()) {
    uniform_average(sum, inputs, static_cast<T>(layout_.members()));
  } else {
    weights_.assign(inputs.size(), T(1));
    weighted_average(sum, T(1), inputs, std::span<const T>(weights_));
  }
}

template <typename T>
void StragglerRing<T>::end_steps() {
  for (std::size_t i = 0; i < in_steps_.size();) {
    const std::size_t flow = in_steps_[i];
    if (flows_[flow].step_ends > fabric_.clock().now()) {
      ++i;
      continue;
    }
    in_steps_.erase(in_steps_.begin() + static_cast<std::ptrdiff_t>(i));
    flows_[flow].is_in_step = false;
    end_step(flow);
  }
}

template <typename T>
void StragglerRing<T>::end_step(std::size_t at) {
  Flow& flow = flows_[at];
  const Duration took = fabric_.clock().now() - flow.step_began;
  flow.is_late = lateness_.is_late(took);
  lateness_.record_step(took);
  advance(at);
}

// Sends the flow on, or records its sum, if its stage says so.
template <typename T>
void StragglerRing<T>::advance(std::size_t at) {
  Flow& flow = flows_[at];
  if (flow.is_in_step) return;
  if (flow.stage.is_summed() && !flow.is_gathered) {
    if (--owned_left_ == 0) report_.scattered = fabric_.clock().now() - began_;
    gathered(at);
  } else if (flow.stage.should_depart()) {
    const auto departure = flow.stage.choose(flow.is_late);
    tell(departure.route == Route::kPast ? kFar : kNear, RingTag::Kind::kPartial, at);
    if (departure.is_notice_due) {
      ++report_.skips;
      tell(kNear, RingTag::Kind::kSkipped, at);
    }
  }
}

// The vector holds the result. It is sent on, unless the successor is the chunk's owner.
template <typename T>
void StragglerRing<T>::gathered(std::size_t flow) {
  flows_[flow].is_gathered = true;
  ++gathered_;
  if (flows_[flow].stage.position() + 2 != layout_.members() && layout_.members() > 1)
    tell(kNear, RingTag::Kind::kResult, flow);
}

template <typename T>
void StragglerRing<T>::tell(std::size_t edge, RingTag::Kind kind, std::size_t flow) {
  out_[edge].due.push({kind, static_cast<std::uint32_t>(report_.step % RingTag::kSteps),
                       static_cast<std::uint32_t>(flow),
                       kind == RingTag::Kind::kResult ? layout_.members() : 0});
}

// Advances expected_ to the first flow that is still waited for. The wait for a flow begins when
// the wait for the one before it has ended.
template <typename T>
void StragglerRing<T>::pass_expected() {
  while (expected_ < layout_.turns()) {
    const Flow& flow = flows_[layout_.incoming(expected_)];
    if (!flow.is_gathered && flow.stage.is_waiting_for_first()) return;
    ++expected_;
    expected_since_ = fabric_.clock().now();
  }
}

template <typename T>
void StragglerRing<T>::expire() {
  pass_expected();
  while (true) {
    const auto event = waiting_ends();
    if (!event || *event > fabric_.clock().now()) return;
    const std::size_t flow = layout_.incoming(expected_);
    flows_[flow].stage.release();
    ++report_.timeouts;
    pass_expected();
    advance(flow);
  }
}

// When the expected flow counts as late; nullopt: never.
template <typename T>
std::optional<TimePoint> StragglerRing<T>::waiting_ends() const {
  if (phase_ != Phase::kExchange || expected_ >= layout_.turns()) return std::nullopt;
  const auto timeout = lateness_.timeout();
  if (!timeout || flows_[layout_.incoming(expected_)].stage.is_owner()) return std::nullopt;
  // A step is late when it takes longer than its threshold, so one tick more.
  return expected_since_ + *timeout + Duration(1);
}

template <typename T>
std::optional<TimePoint> StragglerRing<T>::next_event() const {
  std::optional<TimePoint> event = waiting_ends();
  for (const std::size_t flow : in_steps_)
    event = event ? std::min(*event, flows_[flow].step_ends) : flows_[flow].step_ends;
  return event;
}

template <typename T>
Status StragglerRing<T>::post(Outbound& edge) {
  while (!edge.due.is_empty()) {
    RingTag tag = edge.due.front();
    Flow& flow = flows_[tag.flow];
    if (flow.is_in_step && tag.kind != RingTag::Kind::kSkipped) break;
    if (tag.kind == RingTag::Kind::kPartial) tag.contributions = flow.stage.accumulated();
    Status status = tag.kind == RingTag::Kind::kSkipped
                        ? edge.queue.try_send_inline({}, tag.encode())
                        : edges_->send(edge.queue, tag);
    if (status.is_error())
      return std::move(status).with_context(
          fmt::format("sending chunk {}", layout_.chunk_of(tag.flow)));
    if (status.is_busy()) break;
    if (tag.kind == RingTag::Kind::kPartial) flow.stage.take();
    if (tag.kind != RingTag::Kind::kSkipped) report_.bytes_sent += elements(tag.flow).size_bytes();
    edge.due.pop();
  }
  return Status::ok();
}

// Releases slots in their order, and posts ACKs that could not be posted earlier.
template <typename T>
Status StragglerRing<T>::release(Inbound& edge) {
  Status status = edge.queue.progress();
  auto at = edge.held.begin();
  for (; at != edge.held.end() && at->state == Held::State::kDone; ++at) {
    if (status.is_error()) return status;
    status = edge.queue.release();
  }
  edge.held.erase(edge.held.begin(), at);
  return status.is_error() ? status : Status::ok();
}

template <typename T>
bool StragglerRing<T>::is_exchanged() const {
  if (gathered_ < flows_.size()) return false;
  for (const Outbound& edge : out_) {
    // Notices that were not sent are not needed any more, since all sums are known.
    if (edge.due.has_data()) return false;
  }
  return edges_->is_done();
}

// The all-reduce isn't done before every ACK is posted: a neighbor may wait for it, and the caller
// may not call this object again.
template <typename T>
Status StragglerRing<T>::finish() {
  DUNLIN_TRY(edges_->outcome());
  for (Inbound& edge : in_) DUNLIN_TRY(edge.queue.progress());
  for (Outbound& edge : out_) edge.due.clear();
  phase_ = Phase::kIdle;
  const TimePoint end = fabric_.clock().now();
  report_.took = end - began_;
  if (fabric_.trace() != nullptr) {
    const TimePoint scattered = began_ + report_.scattered;
    fabric_.trace()->span("reduce-scatter", began_, scattered, report_.timeouts + report_.skips);
    fabric_.trace()->span("all-gather", scattered, end,
                          static_cast<std::int64_t>(report_.bytes_sent));
  }
  return Status::ok();
}

template <typename T>
Status StragglerRing<T>::unexpected(const Inbound& edge, const Held& held,
                                    std::string_view why) const {
  return Status(Code::kCorrupted,
                fmt::format("in all-reduce {} a message {}: step {}, flow {}, {} contributions, {} "
                            "bytes",
                            report_.step, why, held.tag.step, held.tag.flow, held.tag.contributions,
                            held.message.data.size()))
      .with_peer(edge.queue.peer());
}

// Lists one segment of each kind of wait. A list of all would be too long to read.
template <typename T>
std::vector<Awaited> StragglerRing<T>::awaited() const {
  std::vector<Awaited> waits;
  if (phase_ != Phase::kExchange || in_.empty()) return waits;
  const auto first = [this](auto&& is_wanted) {
    const auto found = std::find_if(flows_.begin(), flows_.end(), is_wanted);
    return static_cast<std::size_t>(found - flows_.begin());
  };
  const std::size_t open = first([](const Flow& flow) {
    return !flow.is_gathered && !flow.stage.has_sent() && !flow.stage.is_complete();
  });
  if (open < flows_.size()) {
    const RingStage& stage = flows_[open].stage;
    for (const Inbound& edge : in_) {
      waits.push_back(
          {edge.queue.peer(), fmt::format("parts of chunk {} ({} of {} have arrived)",
                                          layout_.chunk_of(open), stage.seen(), stage.position())});
    }
  }
  const std::size_t unknown =
      first([](const Flow& flow) { return !flow.is_gathered && flow.stage.has_sent(); });
  if (unknown < flows_.size()) {
    waits.push_back(
        {in_[kNear].queue.peer(), fmt::format("the sum of chunk {}", layout_.chunk_of(unknown))});
  }
  for (const Outbound& edge : out_) {
    if (!edge.due.is_empty()) {
      waits.push_back({edge.queue.peer(),
                       fmt::format("room for chunk {}", layout_.chunk_of(edge.due.front().flow))});
    }
  }
  if (waits.empty() && !edges_->is_done())
    waits.push_back({out_[kNear].queue.peer(), "the completion of a put"});
  return waits;
}

template <typename T>
Result<StragglerReport> StragglerRing<T>::all_reduce(Duration timeout) {
  DUNLIN_TRY(start());
  const Within waiting = steps_.await();
  Status status =
      watch_.wait([this] { return test(); },
                  transport::Awaiting{[this] { return awaited(); }, [this] { return blocker(); }},
                  timeout, [this] { return next_event(); });
  if (status.is_ok()) return report_;
  stop(status);
  return status;
}

template class StragglerRing<float>;
template class StragglerRing<double>;

}  // namespace dunlin::collective
