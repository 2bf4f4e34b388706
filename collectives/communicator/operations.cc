#include "collectives/communicator/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/fnv.h"
#include "collectives/schedule/choose.h"

namespace dunlin::collective {
namespace {

std::size_t blocks_of(std::size_t elements, std::size_t count) {
  return count == 0 ? 0 : elements / count;
}

}  // namespace

Operations::Operations(Members& group) : group_(group), queue_(kQueue) {
  for (std::uint64_t turn = 0; turn < kTurns; ++turn)
    turns_.push_back(std::make_unique<Running>(group));
}

Status Operations::check(const Call& call) const {
  if (call.root < 0 || call.root >= group_.size()) {
    return {Code::kOutOfRange, fmt::format("{}: root {} of {} ranks", to_string(call.collective),
                                           call.root, group_.size())};
  }
  const bool has_result = call.collective != Collective::kReduce || call.root == group_.rank();
  if (call.count > 0 && (call.input == nullptr || (call.output == nullptr && has_result)))
    return {Code::kInvalidArgument, fmt::format("{}: no memory given", to_string(call.collective))};
  if (call.collective == Collective::kAllToAll && call.input == call.output && call.count > 0)
    return {Code::kInvalidArgument, "all-to-all can't be done in place"};
  return Status::ok();
}

Result<Request> Operations::post(const Call& call, const Algorithm& algorithm) {
  if (!error_.is_ok()) return error_;
  DUNLIN_TRY(check(call));
  if (call.count == 0 && call.collective != Collective::kBarrier) return Request{};
  // A barrier may have to come first.
  if (calls_posted_ - calls_started_ + 2 > kQueue) return Status::busy();
  Posted posted;
  posted.call = call;
  posted.algorithm = &algorithm;
  DUNLIN_TRY(find_memory(posted));
  const bool is_known = last_synchronizing_posted_ + kInFlight > next_number_;
  if (!algorithm.is_polite && next_number_ >= kTurns && !is_known) {
    // Nobody may write to a turn's scratch that a peer may still use.
    Posted barrier;
    barrier.call = {Collective::kBarrier, nullptr, nullptr, 0};
    barrier.algorithm =
        choose_algorithm({Collective::kBarrier, group_.size(), 0}, 1, group_.is_all_mapped());
    barrier.parts = 1;
    DUNLIN_TRY(enqueue(std::move(barrier)).status());
  }
  return enqueue(std::move(posted));
}

// Where the call's memory is in the windows, or else in staging memory.
Status Operations::find_memory(Posted& posted) {
  const Call& call = posted.call;
  const Problem problem{call.collective, group_.size(), call.count, call.root};
  const std::size_t element = size_of(call.reduction.type);
  const auto locate = [&](const void* data, std::size_t elements, Placement& placement) {
    if (data == nullptr || elements == 0) return true;
    placement.window = group_.windows().find(data, elements * element);
    if (placement.window == nullptr) return false;
    placement.first =
        static_cast<std::size_t>(static_cast<const std::byte*>(data) - placement.window->data());
    return true;
  };
  const bool has_input = locate(call.input, problem.input_count(), posted.input);
  const bool has_output = locate(call.output, problem.output_count(), posted.output);
  // In place, one of the two lies within the other, at each member's own place.
  const std::size_t within = problem.in_place_offset(group_.rank()) * element;
  const bool is_gather = call.collective == Collective::kAllGather;
  Placement& inner = is_gather ? posted.input : posted.output;
  const Placement& outer = is_gather ? posted.output : posted.input;
  const bool is_block = is_gather || call.collective == Collective::kReduceScatter;
  if (is_block && inner.window == outer.window && inner.first == outer.first + within) {
    inner.first = outer.first;
    inner.stride = call.count * element;
  }
  posted.slice = call.count;
  posted.parts = 1;
  return has_input && has_output ? Status::ok() : stage(posted);
}

Status Operations::stage(Posted& posted) {
  if (staging_ == nullptr) {
    DUNLIN_ASSIGN(staging_, group_.windows().allocate(kInFlight * 2 * kStagedBytes));
  }
  const Call& call = posted.call;
  const Problem unit{call.collective, group_.size(), 1, call.root};
  const std::size_t per_element =
      std::max(unit.input_count(), unit.output_count()) * size_of(call.reduction.type);
  posted.slice = std::min(call.count, kStagedBytes / per_element);
  if (posted.slice == 0) {
    return {Code::kResourceExhausted,
            fmt::format("{} of {} ranks: an element of each takes more than {} bytes of staging "
                        "memory; use memory from allocate()",
                        to_string(call.collective), group_.size(), kStagedBytes)};
  }
  posted.is_staged = true;
  posted.parts = (call.count + posted.slice - 1) / posted.slice;
  posted.input = posted.output = {staging_, 0, 0};
  return Status::ok();
}

Result<Request> Operations::enqueue(Posted posted) {
  DUNLIN_TRY(prepare(posted));
  const std::uint64_t first = next_number_;
  next_number_ += posted.parts;
  if (posted.algorithm->is_synchronizing) last_synchronizing_posted_ = next_number_;
  const Request request{first, next_number_};
  queue_[calls_posted_++ % kQueue] = std::move(posted);
  return request;
}

// What can fail or block does so now: plans, connections, the peers' memory.
Status Operations::prepare(Posted& posted) {
  for (const std::uint64_t part : {std::uint64_t{0}, posted.parts - 1}) {
    DUNLIN_ASSIGN(Plan* const plan, plan_for(posted, slice_of(posted, part).count));
    for (const auto& [kind, placement] : {std::pair(BufferKind::kInput, &posted.input),
                                          std::pair(BufferKind::kOutput, &posted.output)}) {
      if (placement->window == nullptr) {
        if (!plan->touches_peers[static_cast<std::size_t>(kind)]) continue;
        return {Code::kInvalidArgument,
                fmt::format("{} '{}' reaches into the memory of all ranks: all have to give theirs",
                            to_string(posted.call.collective), posted.algorithm->name)};
      }
      for (const int member : plan->program.peers)
        DUNLIN_TRY(group_.windows().import(*placement->window, member));
    }
  }
  return Status::ok();
}

Result<Plan*> Operations::plan_for(const Posted& posted, std::size_t count) {
  const Call& call = posted.call;
  PlanKey key{{call.collective, group_.size(), count, call.root},
              posted.algorithm,
              size_of(call.reduction.type)};
  if (last_plan_ != nullptr && last_plan_->key == key) return last_plan_;
  if (const auto found = plans_.find(key); found != plans_.end())
    return last_plan_ = found->second.get();
  auto plan = std::make_unique<Plan>();
  plan->key = key;
  const Shape shape = group_.shape_for(key.element);
  DUNLIN_ASSIGN(plan->program, generate(*posted.algorithm, key.problem, shape, group_.rank()));
  if (plan->program.scratch > shape.scratch) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{} '{}' of {} ranks takes {} bytes of scratch, there are {}: raise "
                              "CommunicatorOptions::scratch_bytes",
                              to_string(call.collective), posted.algorithm->name, group_.size(),
                              plan->program.scratch * key.element, group_.scratch_per_turn()));
  }
  for (const Operand& operand : plan->program.all_operands) {
    if (operand.peer != kSelf) plan->touches_peers[static_cast<std::size_t>(operand.buffer)] = true;
  }
  for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
    for (const int member : plan->program.peers) {
      DUNLIN_ASSIGN(ExecutorPeer* const peer, group_.peer(turn, member));
      plan->peers[turn].push_back(peer);
    }
    plan->buffers[turn].resize(plan->program.peers.size());
    place(*plan, turn, BufferKind::kScratch,
          {&group_.scratch(), static_cast<std::size_t>(turn) * group_.scratch_per_turn(), 0});
  }
  return last_plan_ = plans_.emplace(key, std::move(plan)).first->second.get();
}

Range Operations::slice_of(const Posted& posted, std::uint64_t part) const {
  return posted.call.count == 0
             ? Range{}
             : segment_of({0, posted.call.count}, posted.slice, static_cast<std::size_t>(part));
}

bool Operations::may_start() const {
  if (next_start_ == next_number_ || next_start_ - oldest_ >= kInFlight) return false;
  return is_turn_free(*queue_[calls_started_ % kQueue].algorithm);
}

bool Operations::repeat(const Call& call, Request& request) {
  Running& running = *turns_[next_number_ % kTurns];
  if (oldest_ != next_number_ || !error_.is_ok() || running.is_staged ||
      running.memory_version != group_.windows().version()) {
    return false;
  }
  const Call& before = running.call;
  const bool is_same = call.collective == before.collective && call.input == before.input &&
                       call.output == before.output && call.count == before.count &&
                       call.reduction == before.reduction && call.root == before.root &&
                       call.algorithm.empty() == running.is_chosen &&
                       (running.is_chosen || call.algorithm == running.algorithm->name);
  if (!is_same || !is_turn_free(*running.algorithm)) return false;
  begin_span(running);
  running.executor.restart();
  running.number = next_number_;
  running.is_over = false;
  request = {next_number_, next_number_ + 1};
  next_start_ = ++next_number_;
  if (running.algorithm->is_synchronizing) last_synchronizing_posted_ = next_number_;
  return true;
}

// See plan.h: the scratch of the next part's turn is free everywhere.
bool Operations::is_turn_free(const Algorithm& algorithm) const {
  return algorithm.is_polite || next_start_ < kTurns ||
         last_synchronizing_over_ + kInFlight > next_start_;
}

Status Operations::start_part() {
  Posted& posted = queue_[calls_started_ % kQueue];
  Running& running = *turns_[next_start_ % kTurns];
  running.number = next_start_;
  running.call = posted.call;
  running.algorithm = posted.algorithm;
  running.is_chosen = posted.call.algorithm.empty();
  running.is_staged = posted.is_staged;
  running.slice = slice_of(posted, posted.started);
  begin_span(running);
  DUNLIN_ASSIGN(Plan* const plan, plan_for(posted, running.slice.count));
  if (running.is_staged) copy_in(running);
  DUNLIN_TRY(bind(running, posted, *plan));
  running.memory_version = group_.windows().version();
  running.is_over = false;
  ++next_start_;
  if (++posted.started == posted.parts) ++calls_started_;
  return Status::ok();
}

Status Operations::bind(Running& running, const Posted& posted, Plan& plan) {
  const std::uint64_t turn = running.number % kTurns;
  ExecutorBinding binding;
  binding.program = &plan.program;
  binding.peers = plan.peers[turn];
  binding.buffers = plan.buffers[turn];
  binding.reduction = posted.call.reduction;
  binding.element = plan.key.element;
  Fnv signature;  // of what all members have to agree about
  signature.add(static_cast<std::uint64_t>(posted.call.collective))
      .add(posted.call.count)
      .add(static_cast<std::uint64_t>(posted.call.root))
      .add(static_cast<std::uint64_t>(posted.call.reduction.type))
      .add(static_cast<std::uint64_t>(posted.call.reduction.op))
      .add(static_cast<std::uint64_t>(posted.algorithm - algorithms().data()));
  const auto set = [&](BufferKind kind, Placement placement, std::size_t bytes) -> Status {
    if (posted.is_staged && kind != BufferKind::kScratch)
      placement.first = staged_at(running.number, kind);
    if (kind != BufferKind::kScratch) {
      place(plan, turn, kind, placement);
      // A root's memory may be its own affair.
      if (!plan.key.problem.is_rooted()) signature.add(placement.first).add(placement.stride);
    }
    if (placement.window == nullptr) return Status::ok();
    DUNLIN_ASSIGN(binding.own[static_cast<std::size_t>(kind)],
                  placement.window->memory->slice(
                      Window::base(group_.rank()) + placement.at(group_.rank()), bytes));
    return Status::ok();
  };
  const Problem& problem = plan.key.problem;
  DUNLIN_TRY(set(BufferKind::kInput, posted.input, problem.input_count() * binding.element));
  DUNLIN_TRY(set(BufferKind::kOutput, posted.output, problem.output_count() * binding.element));
  DUNLIN_TRY(set(BufferKind::kScratch,
                 {&group_.scratch(), static_cast<std::size_t>(turn) * group_.scratch_per_turn(), 0},
                 group_.scratch_per_turn()));
  binding.signature = static_cast<std::uint32_t>(signature.value() ^ signature.value() >> 32);
  return running.executor.start(binding);
}

Status Operations::progress() {
  if (!error_.is_ok()) return error_;
  for (;;) {
    bool has_moved = false;
    while (may_start()) {
      if (Status status = start_part(); !status.is_ok()) return error_ = std::move(status);
    }
    for (std::uint64_t number = oldest_; number < next_start_; ++number) {
      Running& running = *turns_[number % kTurns];
      if (running.is_over) continue;
      Status status = running.executor.test();
      if (status.is_busy()) continue;
      if (!status.is_ok()) {
        return error_ = std::move(status).with_context(fmt::format(
                   "{} of {} elements", to_string(running.call.collective), running.call.count));
      }
      running.is_over = true;
      if (running.is_staged) copy_out(running);
      end_span(running);
      has_moved = true;
      if (running.algorithm->is_synchronizing)
        last_synchronizing_over_ = std::max(last_synchronizing_over_, number + 1);
    }
    while (oldest_ < next_start_ && turns_[oldest_ % kTurns]->is_over) ++oldest_;
    // What has ended may let others start.
    if (!has_moved || next_start_ == next_number_) return Status::ok();
  }
}

void Operations::begin_span(Running& running) {
  if (Trace* const trace = group_.fabric().trace()) running.began = trace->clock().now();
}

void Operations::end_span(const Running& running) {
  Trace* const trace = group_.fabric().trace();
  if (trace == nullptr) return;
  const std::size_t count = running.is_staged ? running.slice.count : running.call.count;
  trace->span(to_string(running.call.collective), running.began, trace->clock().now(),
              static_cast<std::int64_t>(count * size_of(running.call.reduction.type)));
}

bool Operations::is_over(const Request& request) const {
  if (request.end <= oldest_) return true;
  if (request.end > next_start_) return false;
  // Parts may end in any order.
  for (std::uint64_t number = std::max(request.first, oldest_); number < request.end; ++number) {
    if (!turns_[number % kTurns]->is_over) return false;
  }
  return true;
}

std::vector<transport::Awaited> Operations::awaited() const {
  for (std::uint64_t number = oldest_; number < next_start_; ++number) {
    const Running& running = *turns_[number % kTurns];
    if (running.is_over) continue;
    const Rank peer = running.executor.awaited();
    if (peer == Rank()) continue;
    return {{peer, fmt::format("its part of {} #{} ({}) in communicator '{}'",
                               to_string(running.call.collective), number, running.algorithm->name,
                               group_.options().name)}};
  }
  return {};
}

bool Operations::is_quiet() const {
  return std::ranges::all_of(turns_, [](const auto& turn) { return turn->executor.is_quiet(); });
}

std::size_t Operations::staged_at(std::uint64_t number, BufferKind kind) const {
  return (number % kInFlight * 2 + (kind == BufferKind::kOutput ? 1 : 0)) * kStagedBytes;
}

void Operations::copy_in(const Running& running) const {
  const Call& call = running.call;
  if (call.collective == Collective::kBroadcast && call.root != group_.rank()) return;
  const Problem whole{call.collective, group_.size(), call.count, call.root};
  const std::size_t element = size_of(call.reduction.type);
  const auto* const from = static_cast<const std::byte*>(call.input);
  std::byte* const to = staging_->data() + staged_at(running.number, BufferKind::kInput);
  for (std::size_t block = 0; block < blocks_of(whole.input_count(), call.count); ++block) {
    std::memcpy(to + block * running.slice.count * element,
                from + (block * call.count + running.slice.begin) * element,
                running.slice.count * element);
  }
}

void Operations::copy_out(const Running& running) const {
  const Call& call = running.call;
  if (call.collective == Collective::kReduce && call.root != group_.rank()) return;
  const Problem whole{call.collective, group_.size(), call.count, call.root};
  const std::size_t element = size_of(call.reduction.type);
  const std::byte* const from = staging_->data() + staged_at(running.number, BufferKind::kOutput);
  auto* const to = static_cast<std::byte*>(call.output);
  for (std::size_t block = 0; block < blocks_of(whole.output_count(), call.count); ++block) {
    std::memcpy(to + (block * call.count + running.slice.begin) * element,
                from + block * running.slice.count * element, running.slice.count * element);
  }
}

}  // namespace dunlin::collective
