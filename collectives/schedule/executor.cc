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

// Beyond this share of the last-level cache, what is written is gone before it is read again.
constexpr std::size_t kCacheShare = 2;
constexpr std::size_t kUsualCache = std::size_t{16} << 20;

std::size_t streaming_bytes() {
  const std::size_t cache = host_topology().l3_bytes;
  return (cache == 0 ? kUsualCache : cache) / kCacheShare;
}

}  // namespace

KernelCompute::KernelCompute() : streaming_bytes_(streaming_bytes()) {}

bool KernelCompute::run(Reduction reduction, std::span<const std::byte* const> inputs,
                        std::span<std::byte* const> targets, std::size_t count,
                        std::size_t divisor) {
  const Stores stores =
      count * size_of(reduction.type) >= streaming_bytes_ ? Stores::kStreaming : Stores::kCached;
  collective::reduce(reduction, inputs, targets, count, divisor, stores);
  return true;
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
    return {Code::kInvalidArgument, "a program is started before the one before has ended"};
  binding_ = binding;
  make_room(*binding.program);
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
  return true;
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
  notification.sequence = way.sent + 1;
  // The cell of a single put stays as it is until the peer has read it. Others can tell nothing.
  const bool is_only = binding_.program->puts_once[static_cast<std::size_t>(step.peer)];
  if (is_only) notification.tag = binding_.signature;
  const Operand& from = binding_.program->input(step);
  if (is_only && bytes <= transport::kInlineBytes) {
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
  notification.sequence = way.sent + 1;
  DUNLIN_TRY(way.lane->notify(notification, nullptr));
  ++way.sent;
  return Status::ok();
}

Status Executor::wait(const Step& step) {
  ExecutorPeer& from = peer(step);
  ExecutorPeer::Way& way = from.ways[static_cast<std::size_t>(step.stream)];
  const NotifyCell& cell = board_.cell(way.ours);
  // Acquire: pairs with the publication; what was put before is visible.
  if (cell.sequence.load(std::memory_order_acquire) <= way.taken) return Status::busy();
  if (step.stream == Stream::kData &&
      binding_.program->hears_once[static_cast<std::size_t>(step.peer)])
    DUNLIN_TRY(take_content(step, cell));
  ++way.taken;
  return Status::ok();
}

Status Executor::take_content(const Step& step, const NotifyCell& cell) const {
  if (cell.tag != binding_.signature) {
    return Status(Code::kInvalidArgument,
                  "the peer is in another collective: all ranks have to make the same calls in the "
                  "same order, with the same counts, types, algorithms and places in memory")
        .with_peer(peer(step).rank);
  }
  if (cell.inline_size != 0) {
    transport::copy_inline(own(binding_.program->target(step)), cell.inline_data, cell.inline_size);
  }
  return Status::ok();
}

Status Executor::reduce(const Step& step) {
  const Program& program = *binding_.program;
  inputs_.clear();
  targets_.clear();
  for (const Operand& operand : program.inputs(step)) inputs_.push_back(reach(operand));
  for (const Operand& operand : program.targets(step)) targets_.push_back(reach(operand));
  const bool is_copy = step.inputs == 1 && !step.finishes;
  if (step.count == 0 || (is_copy && step.targets == 1 && inputs_[0] == targets_[0]))
    return Status::ok();
  const bool is_divided = step.finishes && binding_.reduction.op == ReduceOp::kAverage;
  const auto divisor = is_divided ? static_cast<std::size_t>(program.size) : 1;
  return compute_.run(binding_.reduction, inputs_, targets_, step.count, divisor) ? Status::ok()
                                                                                  : Status::busy();
}

Status Executor::drain() {
  bool is_done = true;
  for (std::size_t i = 0; i < state_count_; ++i) {
    PeerState& state = states_[i];
    if (!state.has_puts) continue;
    if (!state.is_draining) {
      flushed_[i].reset();
      auto& way = binding_.peers[i]->ways[static_cast<std::size_t>(Stream::kData)];
      DUNLIN_TRY(way.lane->flush(transport::Visibility::kLocal, &flushed_[i]));
      state.is_draining = true;
    }
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
