#include "collectives/schedule/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/topology.h"

namespace dunlin::collective {

using transport::Completion;
using transport::LocalSlice;
using transport::Notification;
using transport::NotifyCell;
using transport::RemoteSlice;

namespace {

// Targets larger than this share of the last-level cache are evicted before they are read again.
constexpr std::size_t kCacheShare = 2;
constexpr std::size_t kUsualCache = std::size_t{16} << 20;

std::size_t streaming_bytes() {
  const std::size_t cache = host_topology().l3_bytes;
  return (cache == 0 ? kUsualCache : cache) / kCacheShare;
}

}  // namespace

// Whether the peer has stored another notification since `sequence` was read, so that the other
// fields may be that one's.
static bool has_changed(const NotifyCell& cell, std::uint64_t sequence) {
  std::atomic_thread_fence(std::memory_order_acquire);
  return cell.sequence.load(std::memory_order_relaxed) != sequence;
}

std::optional<std::uint64_t> probed_signature(const NotifyCell& cell, const Numbering& numbering) {
  const std::uint64_t sequence = cell.sequence.load(std::memory_order_acquire);
  const bool is_now = numbering.is_this_round(sequence) && cell.length == numbering.probe_length();
  if (!numbering.is_probe(sequence) || !is_now) return std::nullopt;
  const std::uint64_t signature = cell.tag;
  return has_changed(cell, sequence) ? std::nullopt : std::optional(signature);
}

KernelCompute::KernelCompute() : streaming_bytes_(streaming_bytes()) {}

Status KernelCompute::run(Reduction reduction, std::span<const std::byte* const> inputs,
                          std::span<std::byte* const> targets, std::size_t count,
                          std::size_t divisor) {
  const Stores stores =
      count * size_of(reduction.type) >= streaming_bytes_ ? Stores::kStreaming : Stores::kCached;
  collective::reduce(reduction, inputs, targets, count, divisor, stores);
  return Status::ok();
}

void Executor::make_room(const Program& program) {
  state_count_ = program.peers.size();
  if (states_.size() < state_count_) {
    states_.resize(state_count_);
    flushed_ = std::make_unique<Completion[]>(state_count_);
  }
  std::fill_n(states_.begin(), state_count_, PeerState{});
  inputs_.reserve(program.most_operands);
  targets_.reserve(program.most_operands);
}

Status Executor::start(const ExecutorBinding& binding) {
  if (is_running_ || !is_quiet())
    return {Code::kInvalidArgument, "the previous program has not ended"};
  binding_ = binding;
  make_room(*binding.program);
  mismatch_.reset();
  at_ = 0;
  is_running_ = true;
  return Status::ok();
}

Status Executor::test() {
  if (!is_running_) return Status::ok();
  Status status = run();
  if (!status.is_busy()) is_running_ = false;
  return status;
}

Status Executor::run() {
  const std::vector<Step>& steps = binding_.program->steps;
  for (; at_ < steps.size(); ++at_) {
    const Step& step = steps[at_];
    switch (step.kind) {
      case StepKind::kPut:
        DUNLIN_TRY(put(step));
        break;
      case StepKind::kSignal:
        DUNLIN_TRY(signal(step));
        break;
      case StepKind::kWait:
        DUNLIN_TRY(wait(step));
        break;
      case StepKind::kReduce:
        DUNLIN_TRY(reduce(step));
        break;
      case StepKind::kDrain:
        DUNLIN_TRY(drain());
        break;
    }
  }
  return drain();
}

bool Executor::is_quiet() const {
  for (std::size_t i = 0; i < state_count_; ++i) {
    if (states_[i].is_draining && !flushed_[i].is_done()) return false;
    if (states_[i].has_puts && !states_[i].is_draining) return false;
  }
  return compute_.is_idle();
}

Rank Executor::awaited() const {
  const std::vector<Step>& steps = binding_.program->steps;
  if (is_running_ && at_ < steps.size() && steps[at_].peer != kSelf) return peer(steps[at_]).rank;
  for (std::size_t i = 0; i < state_count_; ++i) {
    if (states_[i].is_draining && !flushed_[i].is_done()) return binding_.peers[i]->rank;
  }
  return {};
}

std::byte* Executor::own(const Operand& operand) const {
  return binding_.own[static_cast<std::size_t>(operand.buffer)].data() +
         operand.offset * binding_.element;
}

std::byte* Executor::reach(const Operand& operand) const {
  if (operand.peer == kSelf) return own(operand);
  const PeerBuffer& buffer = binding_.buffers[static_cast<std::size_t>(operand.peer)]
                                             [static_cast<std::size_t>(operand.buffer)];
  return buffer.mapped + operand.offset * binding_.element;
}

Status Executor::put(const Step& step) {
  ExecutorPeer& to = peer(step);
  ExecutorPeer::Way& way = to.ways[static_cast<std::size_t>(Stream::kData)];
  const std::size_t bytes = step.count * binding_.element;
  Notification notification;
  notification.id = way.theirs;
  notification.sequence = binding_.numbering.message(way.sent + 1);
  notification.tag = binding_.signature;
  // The cell of a single put does not change until the peer has read it; only such a cell can carry
  // the bytes.
  const bool is_only = binding_.program->puts_once[static_cast<std::size_t>(step.peer)];
  const Operand& from = binding_.program->input(step);
  if (is_only && bytes <= transport::kInlineBytes && !binding_.is_on_gpu) {
    notification.inline_data = {own(from), bytes};
    DUNLIN_TRY(way.lane->notify(notification, nullptr));
  } else {
    const Operand& to_place = binding_.program->target(step);
    const PeerBuffer& buffer = binding_.buffers[static_cast<std::size_t>(step.peer)]
                                               [static_cast<std::size_t>(to_place.buffer)];
    DUNLIN_ASSIGN(const LocalSlice source,
                  binding_.own[static_cast<std::size_t>(from.buffer)].slice(
                      from.offset * binding_.element, bytes));
    DUNLIN_ASSIGN(const RemoteSlice target,
                  buffer.region->slice(buffer.offset + to_place.offset * binding_.element, bytes));
    DUNLIN_TRY(way.lane->put_notify(source, target, notification, nullptr));
    states_[static_cast<std::size_t>(step.peer)].has_puts = true;
  }
  ++way.sent;
  return Status::ok();
}

Status Executor::signal(const Step& step) {
  ExecutorPeer::Way& way = peer(step).ways[static_cast<std::size_t>(Stream::kControl)];
  Notification notification;
  notification.id = way.theirs;
  notification.sequence = binding_.numbering.message(way.sent + 1);
  notification.tag = binding_.signature;
  DUNLIN_TRY(way.lane->notify(notification, nullptr));
  ++way.sent;
  return Status::ok();
}

Status Executor::wait(const Step& step) {
  ExecutorPeer& from = peer(step);
  ExecutorPeer::Way& way = from.ways[static_cast<std::size_t>(step.stream)];
  const NotifyCell& cell = board_.cell(way.ours);
  // Acquire: pairs with the release store of the notification. Earlier puts are then visible.
  const std::uint64_t sequence = cell.sequence.load(std::memory_order_acquire);
  if (binding_.numbering.count_of(sequence) <= way.taken) return still_waits();
  DUNLIN_TRY(check_sender(step, cell, sequence));
  if (step.stream == Stream::kData && cell.inline_size != 0 &&
      binding_.program->receives_once[static_cast<std::size_t>(step.peer)]) {
    if (binding_.is_on_gpu || cell.inline_size != step.count * binding_.element) {
      return Status(Code::kCorrupted, "the peer's notification carries a wrong number of bytes")
          .with_peer(from.rank);
    }
    transport::copy_inline(own(binding_.program->target(step)), cell.inline_data, cell.inline_size);
  }
  ++way.taken;
  return Status::ok();
}

// A put to a GPU that has failed was never announced, so that the peers would not answer.
Status Executor::still_waits() const {
  if (binding_.is_on_gpu) {
    for (std::size_t i = 0; i < state_count_; ++i) {
      if (!states_[i].has_puts) continue;
      Status failure = data_lane(i).failure();
      if (!failure.is_ok()) return std::move(failure).with_peer(binding_.peers[i]->rank);
    }
  }
  return Status::busy();
}

Status Executor::check_sender(const Step& step, const transport::NotifyCell& cell,
                              std::uint64_t sequence) {
  const Numbering& numbering = binding_.numbering;
  const ExecutorPeer& from = peer(step);
  const std::uint64_t signature = cell.tag;
  if (numbering.is_this_round(sequence) && signature == binding_.signature) return Status::ok();
  if (has_changed(cell, sequence)) return Status::busy();  // look again
  if (!numbering.is_this_round(sequence) && step.stream == Stream::kControl) {
    // The peer is in a later program, whose notification has overwritten the signature. It has
    // completed this one, so its call matched those that it heard from. What remains to check is
    // that it has sent all messages of this program.
    const std::uint64_t all = from.ways[static_cast<std::size_t>(Stream::kControl)].taken +
                              messages_left(step) + (numbering.is_probe(sequence) ? 0 : 1);
    if (numbering.count_of(sequence) >= all) return Status::ok();
  }
  mismatch_ = Mismatch{from.rank, signature};
  return Status(Code::kInvalidArgument, "the peer executes another call").with_peer(from.rank);
}

std::uint64_t Executor::messages_left(const Step& step) const {
  const std::vector<Step>& steps = binding_.program->steps;
  return static_cast<std::uint64_t>(std::count_if(
      steps.begin() + static_cast<std::ptrdiff_t>(at_), steps.end(), [&](const Step& each) {
        return each.kind == StepKind::kWait && each.peer == step.peer && each.stream == step.stream;
      }));
}

Status Executor::probe() {
  const std::vector<Step>& steps = binding_.program->steps;
  if (!is_running_ || at_ >= steps.size() || steps[at_].peer == kSelf) return Status::ok();
  ExecutorPeer& to = peer(steps[at_]);
  const ExecutorPeer::Way& way = to.ways[static_cast<std::size_t>(Stream::kControl)];
  const Numbering& numbering = binding_.numbering;
  if (to.probed == numbering.round + 1) return Status::ok();
  Notification notification;
  notification.id = way.theirs;
  notification.sequence = numbering.message(way.sent) | numbering.probe_bit();
  notification.tag = binding_.signature;
  notification.length = numbering.probe_length();
  DUNLIN_TRY(way.lane->notify(notification, nullptr));
  to.probed = numbering.round + 1;
  return Status::ok();
}

Status Executor::reduce(const Step& step) {
  const Program& program = *binding_.program;
  inputs_.clear();
  targets_.clear();
  for (const Operand& operand : program.inputs(step)) inputs_.push_back(reach(operand));
  for (const Operand& operand : program.targets(step)) targets_.push_back(reach(operand));
  if (step.inputs == 1 && !step.finishes) std::erase(targets_, inputs_[0]);  // in place
  if (step.count == 0 || targets_.empty()) return Status::ok();
  const bool is_divided = step.finishes && binding_.reduction.op == ReduceOp::kAverage;
  const auto divisor = is_divided ? static_cast<std::size_t>(program.size) : 1;
  return compute_.run(binding_.reduction, inputs_, targets_, step.count, divisor);
}

Status Executor::begin_drain(std::size_t peer) {
  flushed_[peer].reset();
  DUNLIN_TRY(data_lane(peer).flush(transport::Visibility::kLocal, &flushed_[peer]));
  states_[peer].is_draining = true;
  return Status::ok();
}

bool Executor::stop() {
  is_running_ = false;
  for (std::size_t i = 0; i < state_count_; ++i) {
    PeerState& state = states_[i];
    if (state.has_puts && !state.is_draining) {
      const Status status = begin_drain(i);
      // A lane without its peer takes no flush, but knows whether it still accesses memory.
      if (status.is_error() && data_lane(i).is_idle()) state = {};
    }
    if (state.is_draining && flushed_[i].is_done()) state = {};
  }
  return is_quiet();
}

Status Executor::drain() {
  bool is_done = true;
  for (std::size_t i = 0; i < state_count_; ++i) {
    PeerState& state = states_[i];
    if (!state.has_puts) continue;
    if (!state.is_draining) DUNLIN_TRY(begin_drain(i));
    if (!flushed_[i].is_done()) {
      is_done = false;
      continue;
    }
    state.is_draining = false;
    state.has_puts = false;
    if (!flushed_[i].status().is_ok())
      return Status(flushed_[i].status()).with_peer(binding_.peers[i]->rank);
  }
  return is_done ? Status::ok() : Status::busy();
}

}  // namespace dunlin::collective
