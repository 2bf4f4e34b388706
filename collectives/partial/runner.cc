#include "collectives/partial/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/schedule/choose.h"

namespace dunlin::collective::partial {

namespace {

// Slice size for memory that is in no window. A slice is copied and reduced at a time: it is small
// enough to stay in the caches, and large enough for the overhead of its messages.
constexpr std::size_t kStagedBytes = std::size_t{1} << 20;

// How many programs are kept: enough for some group sizes, places in them and counts. Others are
// generated again.
constexpr std::size_t kMostPlans = 64;

}  // namespace

Runner::Runner(transport::Fabric& fabric, Memory& memory, Contacts& contacts, Terms terms,
               std::unique_ptr<Compute> compute)
    : fabric_(fabric),
      memory_(memory),
      contacts_(contacts),
      terms_(std::move(terms)),
      compute_(std::move(compute)),
      executor_(std::make_unique<Executor>(fabric.board(), *compute_)) {}

Status Runner::allocate_scratch() {
  if (scratch_ != nullptr) return Status::ok();
  settle();
  // Memory of a GPU is never staged.
  const std::size_t staged = memory_.is_on_gpu() ? 0 : kStagedBytes;
  DUNLIN_ASSIGN(scratch_, memory_.allocate_at_once(kTurns * (terms_.scratch_bytes + staged)));
  return Status::ok();
}

Status Runner::copy(const Task& task) {
  const std::size_t bytes = task.count * size_of(task.reduction.type);
  if (bytes == 0 || task.input == task.output) return Status::ok();
  const auto* const from = static_cast<const std::byte*>(task.input);
  auto* const to = static_cast<std::byte*>(task.output);
  return compute_->run({DataType::kUint8, ReduceOp::kSum}, std::span(&from, 1), std::span(&to, 1),
                       bytes, 1);
}

Status Runner::start(const Task& task) {
  task_ = &task;
  is_staged_ = std::ranges::any_of(task.hellos, [](const Hello& hello) { return hello.is_staged; });
  if (is_staged_ && memory_.is_on_gpu())
    return {Code::kCorrupted, "a member of GPUs stages its memory, which none does"};
  const std::size_t element = size_of(task.reduction.type);
  slice_length_ = is_staged_ ? std::min(task.count, kStagedBytes / element) : task.count;
  slice_ = 0;
  slices_ = task.count == 0 ? 1 : (task.count + slice_length_ - 1) / slice_length_;
  DUNLIN_TRY(choose());
  for (Contact* const contact : task.contacts) {
    if (contact == nullptr) continue;
    // The messages of aborted operations have lower numbers.
    for (ExecutorPeer& end : contact->ends) {
      for (ExecutorPeer::Way& way : end.ways) way.sent = way.taken = task.number << kMessageBits;
    }
  }
  return start_slice();
}

Status Runner::choose() {
  const int size = static_cast<int>(task_->contacts.size());
  const bool is_all_mapped =
      std::ranges::all_of(task_->hellos, [](const Hello& hello) { return hello.maps_all; });
  if (task_->count == 0) {
    algorithm_ = choose_algorithm({Collective::kBarrier, size, 0}, 1, {is_all_mapped});
    return Status::ok();
  }
  if (terms_.algorithm.empty()) {
    algorithm_ = choose_algorithm({Collective::kAllReduce, size, task_->count},
                                  size_of(task_->reduction.type), {is_all_mapped});
    return Status::ok();
  }
  DUNLIN_ASSIGN(algorithm_, find_algorithm(Collective::kAllReduce, terms_.algorithm));
  if (!algorithm_->needs_mapped_peers || is_all_mapped) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("'{}' needs all members on one host, over shm", terms_.algorithm)};
}

std::size_t Runner::slice_count() const {
  return std::min(slice_length_, task_->count - static_cast<std::size_t>(slice_) * slice_length_);
}

std::byte* Runner::staged() const {
  return scratch_->data() + kTurns * terms_.scratch_bytes + turn() * kStagedBytes;
}

// Copies a slice between the caller's memory and the staging memory.
void Runner::move(bool is_in) const {
  const std::size_t element = size_of(task_->reduction.type);
  const std::size_t offset = static_cast<std::size_t>(slice_) * slice_length_ * element;
  const std::size_t bytes = slice_count() * element;
  if (bytes == 0) return;
  if (is_in) {
    std::memcpy(staged(), static_cast<const std::byte*>(task_->input) + offset, bytes);
  } else {
    std::memcpy(static_cast<std::byte*>(task_->output) + offset, staged(), bytes);
  }
}

Status Runner::start_slice() {
  const std::size_t count = slice_count();
  if (is_staged_) move(true);
  DUNLIN_ASSIGN(const Plan* const plan, plan_for(count));
  DUNLIN_TRY(check_messages(*plan));
  return bind(*plan, count);
}

Result<const Runner::Plan*> Runner::plan_for(std::size_t count) {
  const std::size_t element = size_of(task_->reduction.type);
  const int size = static_cast<int>(task_->contacts.size());
  const PlanKey key{algorithm_, size, task_->index, count, element};
  if (const auto found = plans_.find(key); found != plans_.end()) {
    ++found_;
    found->second.last_use = ++uses_;
    return &found->second;
  }
  Shape shape;
  shape.scratch = terms_.scratch_bytes / element;
  shape.segment = std::max<std::size_t>(1, terms_.segment_bytes / element);
  Plan plan;
  DUNLIN_ASSIGN(plan.program,
                generate(*algorithm_, {algorithm_->collective, size, count}, shape, task_->index));
  if (plan.program.scratch > shape.scratch) {
    return Status(
        Code::kResourceExhausted,
        fmt::format("'{}' of {} ranks takes {} bytes of scratch, there are {}: raise "
                    "PartialOptions::scratch_bytes",
                    algorithm_->name, size, plan.program.scratch * element, terms_.scratch_bytes));
  }
  ++generated_;
  plan.last_use = ++uses_;
  // No program is running now, so any of them can go.
  if (plans_.size() >= kMostPlans) {
    plans_.erase(std::ranges::min_element(plans_, {},
                                          [](const auto& each) { return each.second.last_use; }));
  }
  return &plans_.emplace(key, std::move(plan)).first->second;
}

// Checks that the cells can count the messages of all slices. The first slice is the longest one,
// and each step sends at most one message.
Status Runner::check_messages(const Plan& plan) const {
  const std::uint64_t slices_of_a_turn = (slices_ + kTurns - 1) / kTurns;
  if (plan.program.steps.size() < kMostMessages / slices_of_a_turn) return Status::ok();
  return {Code::kResourceExhausted,
          fmt::format("'{}' of {} elements takes too many messages: raise "
                      "PartialOptions::segment_bytes, or use memory from allocate()",
                      algorithm_->name, task_->count)};
}

Status Runner::bind(const Plan& plan, std::size_t count) {
  const std::size_t element = size_of(task_->reduction.type);
  peers_.clear();
  for (const int member : plan.program.peers)
    peers_.push_back(&task_->contacts[static_cast<std::size_t>(member)]->ends[turn()]);
  buffers_.assign(peers_.size(), {});
  binding_.program = &plan.program;
  binding_.peers = peers_;
  binding_.buffers = buffers_;
  binding_.reduction = task_->reduction;
  binding_.element = element;
  binding_.is_on_gpu = memory_.is_on_gpu();
  // The hellos have shown that the rest is the same on all members.
  binding_.signature = (task_->tag ^ task_->number) * 0x9e3779b97f4a7c15 + slice_;
  const std::size_t bytes = count * element;
  DUNLIN_TRY(place(BufferKind::kInput, bytes));
  DUNLIN_TRY(place(BufferKind::kOutput, bytes));
  DUNLIN_TRY(place(BufferKind::kScratch, terms_.scratch_bytes));
  return executor_->start(binding_);
}

// Sets the place of a buffer of this rank, and of the program's peers.
Status Runner::place(BufferKind kind, std::size_t own_bytes) {
  const auto index = static_cast<std::size_t>(kind);
  binding_.own[index] = {};
  if (task_->count == 0) return Status::ok();
  const bool is_scratch = kind == BufferKind::kScratch;
  const bool is_input = kind == BufferKind::kInput;
  const std::size_t scratch_at = turn() * terms_.scratch_bytes;
  const std::size_t staged_at = kTurns * terms_.scratch_bytes + turn() * kStagedBytes;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const auto member = static_cast<std::size_t>(binding_.program->peers[i]);
    Contact& contact = *task_->contacts[member];
    const Hello& hello = task_->hellos[member];
    std::uint32_t window = is_input ? hello.input_window : hello.output_window;
    std::uint64_t offset = is_input ? hello.input_offset : hello.output_offset;
    if (is_scratch || is_staged_) {
      window = hello.scratch_window;
      offset = Memory::base(contact.rank) + (is_scratch ? scratch_at : staged_at);
    }
    DUNLIN_ASSIGN(const transport::RemoteRegion* const region, contacts_.window(contact, window));
    if (offset > region->size() || own_bytes > region->size() - offset) {
      return Status(Code::kCorrupted,
                    fmt::format("the hello names {} bytes at {} of a window of {}", own_bytes,
                                offset, region->size()))
          .with_peer(contact.rank);
    }
    std::byte* const mapped = memory_.mapped(*region);
    if (algorithm_->needs_mapped_peers && mapped == nullptr) {
      return Status(Code::kUnavailable, "the memory of a member is mapped in part only")
          .with_peer(contact.rank);
    }
    buffers_[i][index] = {region, offset, mapped == nullptr ? nullptr : mapped + offset};
  }
  const bool is_own_scratch = is_scratch || is_staged_;
  const OwnWindow& own = is_own_scratch ? *scratch_
                         : is_input     ? *task_->input_window
                                        : *task_->output_window;
  const Hello& hello = task_->hellos[static_cast<std::size_t>(task_->index)];
  std::size_t at = is_input ? hello.input_offset : hello.output_offset;
  if (is_own_scratch) at = own.base + (is_scratch ? scratch_at : staged_at);
  DUNLIN_ASSIGN(binding_.own[index], own.region->slice(at, own_bytes));
  return Status::ok();
}

Status Runner::test() {
  for (;;) {
    DUNLIN_TRY(executor_->test());
    if (is_staged_) move(false);
    if (++slice_ == slices_) return Status::ok();
    DUNLIN_TRY(start_slice());
  }
}

void Runner::abandon(const Task& task, std::vector<const Contact*> greeted) {
  Abandoned abandoned;
  abandoned.number = task.number;
  abandoned.greeted = std::move(greeted);
  for (OwnWindow* const window : {scratch_, task.input_window, task.output_window}) {
    if (window == nullptr) continue;
    memory_.hold(*window);
    abandoned.windows.push_back(window);
  }
  // The executor stops, but its puts may take a while to complete.
  abandoned.peers = std::move(peers_);
  abandoned.executor = std::move(executor_);
  abandoned_.push_back(std::move(abandoned));
  executor_ = std::make_unique<Executor>(fabric_.board(), *compute_);
  memory_.free_later(*scratch_);
  scratch_ = nullptr;  // the next operation allocates another one
  settle();
}

void Runner::settle() {
  std::erase_if(abandoned_, [this](const Abandoned& each) {
    if (!each.executor->stop()) return false;
    const bool is_over = std::ranges::all_of(each.greeted, [&](const Contact* contact) {
      return contacts_.has_ended(*contact, each.number);
    });
    if (!is_over) return false;
    for (OwnWindow* const window : each.windows) memory_.release(*window);
    return true;
  });
}

void Runner::stop() {
  executor_->stop();
  for (const Abandoned& each : abandoned_) each.executor->stop();
}

bool Runner::is_quiet() const {
  return executor_->is_quiet() && std::ranges::all_of(abandoned_, [](const Abandoned& each) {
           return each.executor->is_quiet();
         });
}

}  // namespace dunlin::collective::partial
