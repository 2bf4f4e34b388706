#include "bindings/session/gpu_staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "collectives/communicator/arguments.h"
#include "runtime/log.h"

namespace dunlin::binding {

using collective::Call;
using collective::Collective;
using collective::Problem;
using transport::Awaited;

namespace {

// Slices are multiples of this, so that all but the last one are aligned for the vectors of
// kernels.
constexpr std::size_t kSliceAlignment = 256;

// Memory that is pinned and that copies may access after the session has ended.
void keep_for_good(std::shared_ptr<MemoryRegion> memory) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<MemoryRegion>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

std::size_t blocks_of(std::size_t elements, std::size_t count) {
  return count == 0 ? 0 : elements / count;
}

}  // namespace

Result<std::shared_ptr<GpuStaging>> GpuStaging::create(transport::Fabric& fabric,
                                                       std::shared_ptr<GpuDriver> driver,
                                                       int device, CommunicatorHandle gpus,
                                                       CommunicatorHandle hosts) {
  std::shared_ptr<GpuStaging> made(
      new GpuStaging(fabric, std::move(driver), device, std::move(gpus), std::move(hosts)));
  DUNLIN_ASSIGN(const auto on_gpu, made->gpus_->communicator->allocate(kSlots * kSlotBytes));
  DUNLIN_ASSIGN(const auto on_host, made->hosts_->communicator->allocate(kSlots * kHostSlotBytes));
  DUNLIN_ASSIGN(made->host_memory_, made->hosts_->communicator->owner_of(on_host));
  if (const Status status = made->driver_->pin(device, on_host); status.is_ok()) {
    made->pinned_ = on_host.data();
  } else {
    DUNLIN_WARN("short calls on memory of GPU {} are made on the GPU: {}", device,
                status.message());
  }
  DUNLIN_ASSIGN(made->in_, made->driver_->create_stream(device));
  DUNLIN_ASSIGN(made->out_, made->driver_->create_stream(device));
  for (Slot& slot : made->slots_) {
    const auto index = static_cast<std::size_t>(&slot - made->slots_.data());
    slot.on_gpu = on_gpu.data() + index * kSlotBytes;
    slot.on_host = on_host.data() + index * kHostSlotBytes;
    DUNLIN_ASSIGN(slot.is_filled, made->driver_->create_event(device));
    DUNLIN_ASSIGN(slot.is_emptied, made->driver_->create_event(device));
  }
  return made;
}

Status GpuStaging::check_open() const {
  if (is_closed_) return closed();
  if (!has_communicators()) return {Code::kClosed, "the communicator was released"};
  return failure_;
}

Result<std::shared_ptr<GpuStaging::Work>> GpuStaging::start(GpuCall call) {
  DUNLIN_TRY(check_open());
  auto work = std::make_shared<Work>();
  work->name = call.call.name;
  work->what = std::move(call);
  work->what.call.name = work->name;
  const Call& made = work->what.call;
  DUNLIN_TRY(collective::check_overlap(made, gpus_->rank, gpus_->size));
  work->is_short = has_short_calls_ && slice_of(made, kHostSlotBytes) == made.count;
  work->is_direct = !work->is_short && is_direct(made);
  work->slice = work->is_direct ? made.count : slice_of(made, kSlotBytes);
  if (work->slice == 0 && made.count > 0) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{} of {} members: one element of each takes more than {} bytes",
                              to_string(made.collective), gpus_->size, kSlotBytes));
  }
  if (made.count > 0) work->parts = (made.count + work->slice - 1) / work->slice;
  works_.push_back(work);
  progress();
  return work;
}

// All members have to come to the same answer, so the calls must not differ in what this looks at.
// Members that pass different memory get kInvalidArgument from the communicator of GPUs. A reduce
// is never direct, as only the root has an output, which may be other memory than the inputs. What
// the root of a broadcast passes as its input does not matter: it is copied to its output.
bool GpuStaging::is_direct(const Call& call) const {
  if (call.collective == Collective::kReduce) return false;
  const Problem problem{call.collective, gpus_->size, call.count, call.root};
  const std::size_t element = size_of(call.reduction.type);
  const auto is_own = [&](const void* data, std::size_t elements) {
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(data), elements * element);
    return elements == 0 || data == nullptr || gpus_->communicator->owner_of(bytes).is_ok();
  };
  if (!is_own(call.output, problem.output_count())) return false;
  return call.collective == Collective::kBroadcast || is_own(call.input, problem.input_count());
}

// The most elements of each block that fit into a slot. All-to-all needs both of its ends in there.
std::size_t GpuStaging::slice_of(const Call& call, std::size_t slot_bytes) const {
  const Problem unit{call.collective, gpus_->size, 1, call.root};
  const std::size_t element = size_of(call.reduction.type);
  const std::size_t room = call.collective == Collective::kAllToAll ? slot_bytes / 2 : slot_bytes;
  const std::size_t most = room / (std::max(unit.input_count(), unit.output_count()) * element);
  return std::min(call.count,
                  most < kSliceAlignment ? most : most / kSliceAlignment * kSliceAlignment);
}

// The memory that the communicator works on. Collectives that can run in place do.
Call GpuStaging::call_of(const Part& part) const {
  Call call = part.work->what.call;
  // All members pass the same place, which choose() cannot know.
  const bool is_shared_reduce = call.collective == Collective::kReduce && !part.work->is_short &&
                                gpus_->communicator->is_all_mapped();
  if (is_shared_reduce && call.algorithm.empty()) call.algorithm = "shared";
  if (part.work->is_direct) {
    if (call.collective == Collective::kBroadcast) call.input = call.output;
    return call;
  }
  const Problem problem{call.collective, gpus_->size, part.count, call.root};
  const bool is_short = part.work->is_short;
  std::byte* const at = is_short ? part.slot->on_host : part.slot->on_gpu;
  call.count = part.count;
  call.input = call.output = at;
  if (call.collective == Collective::kAllToAll) {
    call.output = at + (is_short ? kHostSlotBytes : kSlotBytes) / 2;
    return call;
  }
  std::byte* const own = at + problem.in_place_offset(gpus_->rank) * size_of(call.reduction.type);
  if (call.collective == Collective::kAllGather) call.input = own;
  if (call.collective == Collective::kReduceScatter) call.output = own;
  return call;
}

std::vector<GpuStaging::Block> GpuStaging::inputs_of(const Part& part) const {
  const Call& call = part.work->what.call;
  const bool is_broadcast = call.collective == Collective::kBroadcast;
  if (is_broadcast ? call.root != gpus_->rank : part.work->is_direct) return {};
  const Call inner = call_of(part);
  const Problem problem{call.collective, gpus_->size, part.count, call.root};
  const std::size_t element = size_of(call.reduction.type);
  // Neither the caller's memory nor the part's is written to by its reader.
  auto* const from = static_cast<std::byte*>(const_cast<void*>(call.input));
  auto* const to = static_cast<std::byte*>(const_cast<void*>(inner.input));
  std::vector<Block> blocks(blocks_of(problem.input_count(), part.count));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = {from + (i * call.count + part.begin) * element, to + i * part.count * element};
  }
  return blocks;
}

std::vector<GpuStaging::Block> GpuStaging::outputs_of(const Part& part) const {
  const Call& call = part.work->what.call;
  const bool is_root = call.root == gpus_->rank;
  if (part.work->is_direct || (call.collective == Collective::kReduce && !is_root)) return {};
  // The root of a broadcast in place has the result already.
  if (call.collective == Collective::kBroadcast && is_root && call.input == call.output) return {};
  const Call inner = call_of(part);
  const Problem problem{call.collective, gpus_->size, part.count, call.root};
  const std::size_t element = size_of(call.reduction.type);
  auto* const to = static_cast<std::byte*>(call.output);
  auto* const from = static_cast<std::byte*>(inner.output);
  std::vector<Block> blocks(blocks_of(problem.output_count(), part.count));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = {to + (i * call.count + part.begin) * element, from + i * part.count * element};
  }
  return blocks;
}

Status GpuStaging::copy_in(Part& part) {
  const Work& work = *part.work;
  if (part.begin == 0 && work.what.input_ready)
    DUNLIN_TRY(work.what.input_ready->delay(in_->native()));
  // Without copies out, the communicator itself writes to the output.
  if (work.is_direct && work.what.output_ready)
    DUNLIN_TRY(work.what.output_ready->delay(in_->native()));
  const std::size_t bytes = part.count * size_of(work.what.call.reduction.type);
  for (const Block& block : inputs_of(part)) {
    if (block.part == block.caller) continue;
    DUNLIN_TRY(work.is_short ? in_->copy_to_host(block.part, block.caller, bytes)
                             : in_->copy_on_device(block.part, block.caller, bytes));
  }
  DUNLIN_TRY(part.slot->is_filled->record(in_->native()));
  part.has_event = true;
  return Status::ok();
}

Status GpuStaging::copy_out(Part& part) {
  const Work& work = *part.work;
  if (part.begin == 0 && !work.is_direct && work.what.output_ready)
    DUNLIN_TRY(work.what.output_ready->delay(out_->native()));
  const std::size_t bytes = part.count * size_of(work.what.call.reduction.type);
  for (const Block& block : outputs_of(part)) {
    DUNLIN_TRY(work.is_short ? out_->copy_to_device(block.caller, block.part, bytes)
                             : out_->copy_on_device(block.caller, block.part, bytes));
  }
  DUNLIN_TRY(part.slot->is_emptied->record(out_->native()));
  part.has_event = true;
  return Status::ok();
}

Status GpuStaging::begin_parts() {
  for (const std::shared_ptr<Work>& work : works_) {
    while (work->begun < work->parts) {
      if (parts_.size() == kSlots) return Status::ok();
      Part part;
      part.work = work;
      part.slot = &slots_[parts_begun_++ % kSlots];
      part.begin = work->begun * work->slice;
      part.count = std::min(work->slice, work->what.call.count - part.begin);
      ++work->begun;
      parts_.push_back(std::move(part));
      DUNLIN_TRY(copy_in(parts_.back()).with_context("a copy on the GPU"));
    }
  }
  return Status::ok();
}

// A long call is announced on the communicator of the short ones. So members that make a short call
// instead are found at once.
Status GpuStaging::post(Part& part) {
  const Work& work = *part.work;
  if (!work.is_short && part.begin == 0 && !part.announcement) {
    const Call& call = work.what.call;
    const std::string name = fmt::format("{} of {} {} on GPUs", to_string(call.collective),
                                         call.count, to_string(call.reduction.type));
    Call announcement{Collective::kBarrier};
    announcement.name = name;
    DUNLIN_ASSIGN(part.announcement, hosts_->communicator->start(announcement));
  }
  DUNLIN_ASSIGN(part.request, communicator_of(work).start(call_of(part)));
  return Status::ok();
}

Status GpuStaging::run(Part& part) {
  const auto advance = [](collective::Communicator& communicator, auto& request) {
    if (!request) return Status::ok();
    Status status = communicator.test(*request);
    if (!status.is_busy()) request.reset();
    return status;
  };
  Status announced = advance(*hosts_->communicator, part.announcement);
  if (announced.is_error()) return announced;
  DUNLIN_TRY(advance(communicator_of(*part.work), part.request));
  return announced;
}

// Returns kBusy until the part is done.
Status GpuStaging::advance(Part& part) {
  if (part.stage == Stage::kCopyingIn) {
    DUNLIN_TRY(part.slot->is_filled->poll());
    DUNLIN_TRY(post(part));
    part.stage = Stage::kRunning;
  }
  if (part.stage == Stage::kRunning) {
    DUNLIN_TRY(run(part));
    part.stage = Stage::kCopyingOut;
    part.has_event = false;
    DUNLIN_TRY(copy_out(part).with_context("a copy on the GPU"));
  }
  if (part.stage == Stage::kCopyingOut) {
    DUNLIN_TRY(part.slot->is_emptied->poll());
    part.stage = Stage::kDone;
  }
  return Status::ok();
}

Status GpuStaging::advance() {
  DUNLIN_TRY(begin_parts());
  for (Part& part : parts_) {
    Status status = advance(part);
    if (status.is_error()) return status;
    // The members post in the same order.
    if (part.stage == Stage::kCopyingIn) break;
  }
  while (!parts_.empty() && parts_.front().stage == Stage::kDone) {
    const std::shared_ptr<Work> work = std::move(parts_.front().work);
    parts_.pop_front();
    const bool is_last = work->begun == work->parts;
    if (!is_last || (!parts_.empty() && parts_.front().work == work)) continue;
    finish(*work, Status::ok());
    works_.pop_front();
  }
  return Status::ok();
}

void GpuStaging::finish(Work& work, Status outcome) {
  work.outcome = std::move(outcome);
  work.what.input_ready = work.what.output_ready = nullptr;
}

void GpuStaging::progress() {
  if (is_closed_) return;
  if (works_.empty()) {
    if (!has_communicators()) close();  // they were released
    return;
  }
  if (failure_.is_ok()) {
    Status status = has_communicators() ? advance() : closed();
    if (!status.is_ok()) fail(std::move(status));
  }
  if (!failure_.is_ok()) give_up();
  // The end of copies wakes nothing, whereas that of a transfer does.
  const bool is_copying = std::ranges::any_of(parts_, [](const Part& part) {
    return part.stage == Stage::kCopyingIn || part.stage == Stage::kCopyingOut;
  });
  if (!is_copying) awake_.reset();
  if (is_copying && !awake_) awake_.emplace(fabric());
}

void GpuStaging::fail(Status why) {
  if (why.code() == Code::kPeerDead) gpus_->failure = hosts_->failure = why;
  failure_ = std::move(why);
}

// A stream that has failed does no more work.
bool GpuStaging::is_copying(const Part& part) {
  if (part.stage == Stage::kCopyingIn)
    return (part.has_event ? part.slot->is_filled->poll() : in_->poll()).is_busy();
  if (part.stage == Stage::kCopyingOut)
    return (part.has_event ? part.slot->is_emptied->poll() : out_->poll()).is_busy();
  return false;
}

void GpuStaging::give_up() {
  std::erase_if(parts_, [&](const Part& part) { return !is_copying(part); });
  std::erase_if(works_, [&](const std::shared_ptr<Work>& work) {
    const bool is_used =
        std::ranges::any_of(parts_, [&](const Part& part) { return part.work == work; });
    if (!is_used) finish(*work, failure_);
    return !is_used;
  });
}

void GpuStaging::finish_all(const Status& outcome) {
  for (const std::shared_ptr<Work>& work : works_) finish(*work, outcome);
  works_.clear();
  parts_.clear();
}

void GpuStaging::close() {
  if (std::exchange(is_closed_, true)) return;
  const TimePoint until = fabric().clock().now() + fabric().config().deadline;
  bool is_idle = true;
  for (GpuStream* const stream : {in_.get(), out_.get()}) {
    const Status status = await(*stream, fabric().clock(), until, "copies on the GPU");
    if (!status.is_ok()) DUNLIN_WARN("{}", status.message());
    // After an error of the GPU, its streams do no more work.
    is_idle = is_idle && status.code() != Code::kDeadlineExceeded;
  }
  finish_all(closed());
  awake_.reset();
  in_.reset();
  out_.reset();
  slots_ = {};
  if (is_idle) return unpin();
  keep_for_good(std::move(host_memory_));
  pinned_ = nullptr;
}

void GpuStaging::unpin() {
  if (pinned_ != nullptr) driver_->unpin(device_, std::exchange(pinned_, nullptr));
}

std::vector<Awaited> GpuStaging::awaited() {
  if (is_closed_ || works_.empty() || !has_communicators()) return {};
  if (failure_.is_ok() && !parts_.empty() && parts_.front().stage == Stage::kRunning) {
    const Part& first = parts_.front();
    return (first.request ? communicator_of(*first.work) : *hosts_->communicator).awaited();
  }
  return {
      {fabric().rank(), fmt::format("copies of {} on its GPU, or the streams that use the memory",
                                    to_string(works_.front()->what.call.collective))}};
}

}  // namespace dunlin::binding
