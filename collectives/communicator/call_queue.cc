#include "collectives/communicator/call_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/communicator/arguments.h"
#include "collectives/waiting/expiry.h"
#include "runtime/within.h"

namespace dunlin::collective {
namespace {

std::size_t blocks_of(std::size_t elements, std::size_t count) {
  return count == 0 ? 0 : elements / count;
}

}  // namespace

CallQueue::CallQueue(Members& members, Choose choose)
    : members_(members),
      choose_(std::move(choose)),
      queue_(kQueue),
      news_(members.fabric().bootstrap(), members.options().name, members.options().members,
            members.rank()) {
  for (std::uint64_t turn = 0; turn < kTurns; ++turn)
    turns_.push_back(std::make_unique<Running>(members, turn));
}

Result<CollectiveRequest> CallQueue::post(const Call& call, const Algorithm& algorithm) {
  if (!error_.is_ok()) return error_;
  DUNLIN_TRY(check_arguments(call, members_.rank(), members_.size()));
  if (call.count == 0 && call.collective != Collective::kBarrier) {
    ++empty_calls_;
    return CollectiveRequest{};
  }
  // The call may need a barrier in front of it, which takes a second entry.
  if (calls_posted_ - calls_started_ + 2 > kQueue) return Status::busy();
  Posted posted = posted_of(call, algorithm);
  DUNLIN_TRY(find_memory(posted));
  const bool is_known = last_synchronizing_posted_ + kInFlight > next_number_;
  if (!algorithm.is_polite && next_number_ >= kTurns && !is_known) {
    // A put may not reach scratch memory that a peer still uses: a barrier has to free the turn.
    const Call barrier{Collective::kBarrier, nullptr, nullptr, 0};
    DUNLIN_ASSIGN(const Algorithm* const chosen, choose_(barrier));
    DUNLIN_TRY(enqueue(posted_of(barrier, *chosen)).status());
  }
  return enqueue(std::move(posted));
}

CallQueue::Posted CallQueue::posted_of(const Call& call, const Algorithm& algorithm) const {
  Posted posted;
  posted.call = call;
  posted.call.name = {};
  posted.terms.problem = {call.collective, members_.size(), call.count, call.root};
  posted.terms.reduction = call.reduction;
  posted.terms.algorithm = &algorithm;
  posted.terms.slice = call.count;
  posted.terms.is_one_gpu = members_.is_on_one_gpu();
  posted.terms.empty_calls = empty_calls_;
  posted.terms.name = call.name;
  return posted;
}

// Finds the call's memory in the windows; a call with other memory is staged.
Status CallQueue::find_memory(Posted& posted) {
  const Call& call = posted.call;
  const Problem problem{call.collective, members_.size(), call.count, call.root};
  const std::size_t element = size_of(call.reduction.type);
  const auto locate = [&](const void* data, std::size_t elements, Placement& placement) {
    if (data == nullptr || elements == 0) return true;
    Window* const window = members_.windows().find(data, elements * element);
    if (window == nullptr) return false;
    const std::ptrdiff_t first = static_cast<const std::byte*>(data) - window->data();
    placement = {window, static_cast<std::size_t>(first), 0};
    return true;
  };
  const bool has_input = locate(call.input, problem.input_count(), posted.terms.input);
  const bool has_output = locate(call.output, problem.output_count(), posted.terms.output);
  // In place, one buffer lies within the other, at an offset that depends on the member.
  const std::size_t within = problem.in_place_offset(members_.rank()) * element;
  const bool is_gather = call.collective == Collective::kAllGather;
  Placement& inner = is_gather ? posted.terms.input : posted.terms.output;
  const Placement& outer = is_gather ? posted.terms.output : posted.terms.input;
  const bool is_block = is_gather || call.collective == Collective::kReduceScatter;
  if (is_block && inner.window == outer.window && inner.first == outer.first + within) {
    inner.first = outer.first;
    inner.stride = call.count * element;
  }
  return has_input && has_output && !call.copies ? Status::ok() : stage(posted);
}

Status CallQueue::stage(Posted& posted) {
  if (members_.is_on_gpu()) {
    return {Code::kInvalidArgument,
            fmt::format("{}: a communicator of GPUs takes memory from allocate() only",
                        to_string(posted.call.collective))};
  }
  if (staging_ == nullptr) {
    DUNLIN_ASSIGN(staging_,
                  members_.windows().allocate(kInFlight * 2 * kStagedBytes, Pages::kOnUse));
  }
  const Call& call = posted.call;
  const Problem unit{call.collective, members_.size(), 1, call.root};
  const std::size_t per_element =
      std::max(unit.input_count(), unit.output_count()) * size_of(call.reduction.type);
  posted.terms.slice = std::min(call.count, kStagedBytes / per_element);
  if (posted.terms.slice == 0) {
    return {Code::kResourceExhausted,
            fmt::format("{} of {} members: one element from each takes more than {} bytes of "
                        "staging memory; use memory from allocate()",
                        to_string(call.collective), members_.size(), kStagedBytes)};
  }
  posted.terms.is_staged = true;
  posted.parts = (call.count + posted.terms.slice - 1) / posted.terms.slice;
  posted.terms.input = posted.terms.output = {staging_, 0, 0};
  return Status::ok();
}

Result<CollectiveRequest> CallQueue::enqueue(Posted posted) {
  DUNLIN_TRY(prepare(posted));
  const std::uint64_t first = next_number_;
  next_number_ += posted.parts;
  if (posted.terms.algorithm->is_synchronizing) last_synchronizing_posted_ = next_number_;
  const CollectiveRequest request{first, next_number_};
  queue_[calls_posted_++ % kQueue] = std::move(posted);
  return request;
}

// Does everything that can fail or block: generates plans, connects, imports the peers' memory.
Status CallQueue::prepare(Posted& posted) {
  for (const std::uint64_t part : {std::uint64_t{0}, posted.parts - 1}) {
    DUNLIN_ASSIGN(const auto plan, plan_for(posted, slice_of(posted, part).count));
    for (const auto& [kind, placement] : {std::pair(BufferKind::kInput, &posted.terms.input),
                                          std::pair(BufferKind::kOutput, &posted.terms.output)}) {
      if (placement->window == nullptr) {
        if (!plan->touches_peers[static_cast<std::size_t>(kind)]) continue;
        return {Code::kInvalidArgument,
                fmt::format("{} '{}' accesses the memory of all members: all must pass theirs",
                            to_string(posted.call.collective), posted.terms.algorithm->name)};
      }
      DUNLIN_TRY(import(posted, *placement->window, plan->program.peers));
    }
  }
  return Status::ok();
}

Status CallQueue::import(const Posted& posted, Window& window, std::span<const int> members) {
  const TimePoint deadline = members_.fabric().clock().now() + members_.fabric().config().deadline;
  for (;;) {
    const TimePoint now = members_.fabric().clock().now();
    const Duration left = std::max(deadline - now, Duration::zero());
    Status status = members_.windows().import(window, members, std::min(left, kFirstStallCheck));
    if (!is_expiry(status)) return status;
    // A peer may need this member's earlier calls before it allocates the memory.
    DUNLIN_TRY(progress());
    check_probes(next_number_, terms_of(posted, next_number_));
    DUNLIN_TRY(check_news(now));
    if (left <= kFirstStallCheck) return status;
  }
}

Result<std::shared_ptr<Plan>> CallQueue::plan_for(const Posted& posted, std::size_t count) {
  const Call& call = posted.call;
  PlanKey key{{call.collective, members_.size(), count, call.root},
              posted.terms.algorithm,
              size_of(call.reduction.type)};
  if (last_plan_ != nullptr && last_plan_->key == key) return last_plan_;
  if (auto found = plans_.find(key)) return last_plan_ = std::move(found);
  auto plan = std::make_shared<Plan>();
  plan->key = key;
  const Shape shape = members_.shape_for(key.element);
  DUNLIN_ASSIGN(plan->program,
                generate(*posted.terms.algorithm, key.problem, shape, members_.rank()));
  if (plan->program.scratch > shape.scratch) {
    return Status(
        Code::kResourceExhausted,
        fmt::format("{} '{}' among {} members takes {} bytes of scratch, but only {} are "
                    "available: raise "
                    "CommunicatorOptions::scratch_bytes",
                    to_string(call.collective), posted.terms.algorithm->name, members_.size(),
                    plan->program.scratch * key.element, members_.scratch_per_turn()));
  }
  for (const Operand& operand : plan->program.all_operands) {
    if (operand.peer != kSelf) plan->touches_peers[static_cast<std::size_t>(operand.buffer)] = true;
  }
  DUNLIN_TRY(members_.windows().fetch(members_.scratch(), plan->program.peers,
                                      members_.fabric().config().deadline));
  for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
    for (const int member : plan->program.peers) {
      DUNLIN_ASSIGN(ExecutorPeer* const peer, members_.peer(turn, member));
      plan->peers[turn].push_back(peer);
    }
    plan->buffers[turn].resize(plan->program.peers.size());
    place(*plan, turn, BufferKind::kScratch,
          {&members_.scratch(), static_cast<std::size_t>(turn) * members_.scratch_per_turn(), 0});
  }
  plan->direct = direct_bytes_of(plan->program, key.element, plan->peers[0]);
  plans_.insert(plan);
  return last_plan_ = std::move(plan);
}

Range CallQueue::slice_of(const Posted& posted, std::uint64_t part) const {
  return posted.call.count == 0 ? Range{}
                                : segment_of({0, posted.call.count}, posted.terms.slice,
                                             static_cast<std::size_t>(part));
}

bool CallQueue::may_start() const {
  if (next_start_ == next_number_ || next_start_ - oldest_ >= kInFlight) return false;
  return is_turn_free(*queue_[calls_started_ % kQueue].terms.algorithm);
}

bool CallQueue::repeat(const Call& call, CollectiveRequest& request) {
  Running& running = *turns_[next_number_ % kTurns];
  if (oldest_ != next_number_ || !error_.is_ok() || running.terms.is_staged ||
      running.memory_version != members_.windows().version() ||
      running.terms.empty_calls != empty_calls_) {
    return false;
  }
  const Call& before = running.call;
  const bool is_same = call.collective == before.collective && call.input == before.input &&
                       call.output == before.output && call.count == before.count &&
                       call.reduction == before.reduction && call.root == before.root &&
                       call.name == running.terms.name && !call.copies &&
                       call.algorithm.empty() == running.is_chosen &&
                       (running.is_chosen || call.algorithm == running.terms.algorithm->name);
  if (!is_same || !is_turn_free(*running.terms.algorithm)) return false;
  running.record.begin_again(members_.fabric());
  running.executor.restart(numbering_of(next_number_).round);
  running.number = next_number_;
  running.is_over = false;
  request = {next_number_, next_number_ + 1};
  next_start_ = ++next_number_;
  if (running.terms.algorithm->is_synchronizing) last_synchronizing_posted_ = next_number_;
  return true;
}

// True if no member uses the scratch of the next part's turn any more (plan.h).
bool CallQueue::is_turn_free(const Algorithm& algorithm) const {
  return algorithm.is_polite || next_start_ < kTurns ||
         last_synchronizing_over_ + kInFlight > next_start_;
}

Status CallQueue::start_part() {
  Posted& posted = queue_[calls_started_ % kQueue];
  Running& running = *turns_[next_start_ % kTurns];
  running.number = next_start_;
  running.call = posted.call;
  running.is_chosen = posted.call.algorithm.empty();
  running.slice = slice_of(posted, posted.started);
  const std::size_t count = posted.terms.is_staged ? running.slice.count : posted.call.count;
  running.record.begin(members_.fabric(), to_string(posted.call.collective),
                       count * size_of(posted.call.reduction.type));
  DUNLIN_ASSIGN(const auto plan, plan_for(posted, running.slice.count));
  if (posted.terms.is_staged) copy_in(running);
  DUNLIN_TRY(bind(running, posted, plan));
  running.memory_version = members_.windows().version();
  running.is_over = false;
  ++next_start_;
  if (++posted.started == posted.parts) ++calls_started_;
  return Status::ok();
}

CallTerms CallQueue::terms_of(const Posted& posted, std::uint64_t number) const {
  CallTerms terms = posted.terms;
  if (terms.is_staged) {
    terms.input.first = staged_at(number, BufferKind::kInput);
    terms.output.first = staged_at(number, BufferKind::kOutput);
  }
  return terms;
}

Status CallQueue::bind(Running& running, const Posted& posted,
                       const std::shared_ptr<Plan>& shared) {
  Plan& plan = *shared;
  const std::uint64_t turn = running.number % kTurns;
  ExecutorBinding binding;
  binding.program = &plan.program;
  binding.peers = plan.peers[turn];
  binding.buffers = plan.buffers[turn];
  binding.reduction = posted.call.reduction;
  binding.element = plan.key.element;
  binding.is_on_gpu = members_.is_on_gpu();
  running.terms = terms_of(posted, running.number);
  const auto set = [&](BufferKind kind, const Placement& placement, std::size_t bytes) -> Status {
    if (kind != BufferKind::kScratch) place(plan, turn, kind, placement);
    if (placement.window == nullptr) return Status::ok();
    DUNLIN_ASSIGN(binding.own[static_cast<std::size_t>(kind)],
                  placement.window->memory->slice(
                      Window::base(members_.rank()) + placement.at(members_.rank()), bytes));
    return Status::ok();
  };
  const Problem& problem = plan.key.problem;
  DUNLIN_TRY(set(BufferKind::kInput, running.terms.input, problem.input_count() * binding.element));
  DUNLIN_TRY(
      set(BufferKind::kOutput, running.terms.output, problem.output_count() * binding.element));
  DUNLIN_TRY(
      set(BufferKind::kScratch,
          {&members_.scratch(), static_cast<std::size_t>(turn) * members_.scratch_per_turn(), 0},
          members_.scratch_per_turn()));
  binding.signature = signature_of(running.terms);
  binding.numbering = numbering_of(running.number);
  Status status = running.executor.start(binding);
  // The executor referred to the former plan until now.
  running.plan = shared;
  return status;
}

Status CallQueue::progress() {
  const Within advancing(is_advancing_);
  return advancing.was_within() ? Status::ok() : advance();
}

Status CallQueue::advance() {
  if (!error_.is_ok()) return error_;
  if (is_in_doubt()) return Status::ok();
  for (;;) {
    bool has_moved = false;
    while (may_start()) {
      if (Status status = start_part(); !status.is_ok()) {
        turns_[next_start_ % kTurns]->record.give_up(members_.fabric());
        return fail(std::move(status));
      }
    }
    for (std::uint64_t number = oldest_; number < next_start_; ++number) {
      Running& running = *turns_[number % kTurns];
      if (running.is_over) continue;
      Status status = running.executor.test();
      if (status.is_busy()) continue;
      if (!status.is_ok()) {
        if (const auto& mismatch = running.executor.mismatch()) {
          tell_mismatch(number, running.terms, members_.member(mismatch->peer),
                        mismatch->signature);
          return Status::ok();
        }
        return fail(std::move(status).with_context(fmt::format(
            "{} of {} elements", to_string(running.call.collective), running.call.count)));
      }
      running.is_over = true;
      if (running.terms.is_staged) copy_out(running);
      running.record.end(members_.fabric(), running.plan->direct);
      has_moved = true;
      if (running.terms.algorithm->is_synchronizing)
        last_synchronizing_over_ = std::max(last_synchronizing_over_, number + 1);
    }
    while (oldest_ < next_start_ && turns_[oldest_ % kTurns]->is_over) ++oldest_;
    // Parts that have completed may allow others to start.
    if (!has_moved || next_start_ == next_number_) return Status::ok();
  }
}

void CallQueue::tell_mismatch(std::uint64_t number, const CallTerms& own, int member,
                              std::uint64_t signature) {
  std::string other = describe_signature(signature);
  if (other == describe_signature(signature_of(own)))
    other += " with another count, root, name or place in memory";
  news_.tell(number, describe(own), member, std::move(other));
}

void CallQueue::check_probes(std::uint64_t number, const CallTerms& own) {
  const std::uint64_t signature = signature_of(own);
  for (int member = members_.next_writer(0); member < members_.size() && !news_.is_known();
       member = members_.next_writer(member + 1)) {
    if (member == members_.rank()) continue;
    const auto id = members_.own_cell(number % kTurns, Stream::kControl, member);
    const auto probed = probed_signature(members_.board().cell(id), numbering_of(number));
    if (probed && *probed != signature) tell_mismatch(number, own, member, *probed);
  }
}

Status CallQueue::check_news(TimePoint now) {
  Status status = news_.advance(now, [&](std::uint64_t part) {
    const Running& running = *turns_[part % kTurns];
    const bool is_entered = part < next_start_ && running.number == part;
    return is_entered ? describe(running.terms) : std::string();
  });
  return status.is_error() ? fail(std::move(status)) : error_;
}

Status CallQueue::check_stall(TimePoint now) {
  if (!error_.is_ok()) return error_;
  if (is_in_doubt()) {
    if (now < next_news_check_) return Status::ok();
    next_news_check_ = now + kNewsPause;
    return check_news(now);
  }
  if (oldest_ == next_number_) return Status::ok();
  // A part is late for as long as the caller has looked for its end.
  const bool is_new = stalled_part_ != oldest_ || now - last_stall_check_ > kStallMemory;
  last_stall_check_ = now;
  if (is_new) {
    stalled_part_ = oldest_;
    stall_pause_ = kFirstStallCheck;
    next_stall_check_ = now + stall_pause_;
  }
  if (now < next_stall_check_) return Status::ok();
  // The parts in progress, and those that others may not have completed yet.
  for (std::uint64_t number = next_start_ - std::min(next_start_, kTurns); number < next_start_;
       ++number) {
    check_probes(number, turns_[number % kTurns]->terms);
  }
  DUNLIN_TRY(check_news(now));
  for (std::uint64_t number = oldest_; number < next_start_; ++number) {
    Status probed = turns_[number % kTurns]->executor.probe();
    if (probed.is_error()) return fail(std::move(probed));  // not if busy: next time, then
  }
  stall_pause_ = std::min(2 * stall_pause_, kLongestStallPause);
  next_stall_check_ = now + stall_pause_;
  return Status::ok();
}

bool CallQueue::is_over(const CollectiveRequest& request) const {
  if (request.end <= oldest_) return true;
  if (request.end > next_start_) return false;
  // Parts may complete in any order.
  for (std::uint64_t number = std::max(request.first, oldest_); number < request.end; ++number) {
    if (!turns_[number % kTurns]->is_over) return false;
  }
  return true;
}

const CallQueue::Running* CallQueue::held_up() const {
  for (std::uint64_t number = oldest_; number < next_start_; ++number) {
    const Running& running = *turns_[number % kTurns];
    if (!running.is_over && running.executor.awaited() != Rank()) return &running;
  }
  return nullptr;
}

std::vector<transport::Awaited> CallQueue::awaited() const {
  const Running* const running = held_up();
  if (running == nullptr) return {};
  return {{running->executor.awaited(),
           fmt::format("its part of {} #{} ({}) in communicator '{}'",
                       to_string(running->call.collective), running->number,
                       running->terms.algorithm->name, members_.options().name)}};
}

void CallQueue::stop() {
  for (const auto& turn : turns_) turn->executor.stop();
}

bool CallQueue::is_quiet() const {
  return std::ranges::all_of(turns_, [](const auto& turn) { return turn->executor.is_quiet(); });
}

std::size_t CallQueue::staged_at(std::uint64_t number, BufferKind kind) const {
  return (number % kInFlight * 2 + (kind == BufferKind::kOutput ? 1 : 0)) * kStagedBytes;
}

void CallQueue::copy_in(const Running& running) const {
  const Call& call = running.call;
  if (call.collective == Collective::kBroadcast && call.root != members_.rank()) return;
  const Problem whole{call.collective, members_.size(), call.count, call.root};
  const std::size_t element = size_of(call.reduction.type);
  const auto* const from = static_cast<const std::byte*>(call.input);
  std::byte* const to = staging_->data() + staged_at(running.number, BufferKind::kInput);
  for (std::size_t block = 0; block < blocks_of(whole.input_count(), call.count); ++block) {
    std::memcpy(to + block * running.slice.count * element,
                from + (block * call.count + running.slice.begin) * element,
                running.slice.count * element);
  }
}

void CallQueue::copy_out(const Running& running) const {
  const Call& call = running.call;
  if (call.collective == Collective::kReduce && call.root != members_.rank()) return;
  const Problem whole{call.collective, members_.size(), call.count, call.root};
  const std::size_t element = size_of(call.reduction.type);
  const std::byte* const from = staging_->data() + staged_at(running.number, BufferKind::kOutput);
  auto* const to = static_cast<std::byte*>(call.output);
  for (std::size_t block = 0; block < blocks_of(whole.output_count(), call.count); ++block) {
    std::memcpy(to + (block * call.count + running.slice.begin) * element,
                from + block * running.slice.count * element, running.slice.count * element);
  }
}

}  // namespace dunlin::collective
