#include "collectives/partial/partial_all_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "collectives/partial/contacts.h"
#include "collectives/partial/memory.h"
#include "collectives/partial/operation.h"
#include "collectives/partial/runner.h"
#include "collectives/schedule/gpu_compute.h"
#include "runtime/gpu/cuda_driver.h"
#include "runtime/overlap.h"
#include "runtime/within.h"

namespace dunlin::collective {

using partial::Contacts;
using partial::Memory;
using partial::OwnWindow;
using partial::PartialOperation;
using partial::Runner;
using partial::Terms;
using transport::Awaited;
using transport::Fabric;

namespace {

// The scratch of one turn follows that of the other one. Each begins at a cache line.
constexpr std::size_t kScratchAlignment = 64;

}  // namespace

// Kept until done: lanes may access its memory after its owner was destroyed.
class PartialAllReduce::Impl final : public transport::KeptUntilDone {
 public:
  Impl(Fabric& owner, const PartialOptions& options, const Terms& terms,
       std::unique_ptr<Compute> compute)
      : fabric(owner),
        memory(owner, options.name),
        contacts(owner, memory, options.name, terms),
        runner(owner, memory, contacts, terms, std::move(compute)),
        protocol(owner, contacts, runner) {}

  void settle() override { runner.stop(); }
  bool is_done() const override { return runner.is_quiet(); }

  // Null if the operation is over, and if a wait has aborted it: its caller has the outcome.
  PartialOperation* find(std::uint64_t number) const {
    const auto found = std::ranges::find_if(operations, [&](const auto& each) {
      return each->number() == number && !each->is_forgotten;
    });
    return found == operations.end() ? nullptr : found->get();
  }

  // The first operation that isn't over, or null.
  PartialOperation* front() const {
    const auto found =
        std::ranges::find_if(operations, [](const auto& each) { return !each->is_over(); });
    return found == operations.end() ? nullptr : found->get();
  }

  void start_task() {
    task.emplace(fabric, [this] { progress(); });
  }

  // What it calls may progress the fabric, which calls it as a task.
  void progress() {
    const Within inside(is_inside);
    if (!inside.was_within()) advance();
  }

  void advance() {
    contacts.progress();
    bool has_any_ended = false;
    while (PartialOperation* const operation = front()) {
      protocol.advance(*operation);
      if (!operation->is_over()) break;
      has_any_ended = true;
      ++(operation->outcome.is_ok() ? ended : failed);
      if (operation->is_forgotten)
        std::erase_if(operations, [&](const auto& each) { return each.get() == operation; });
    }
    if (has_any_ended) contacts.progress();  // acknowledges aborts of what has ended
    if (runner.abandoned() > 0) runner.settle();
  }

  Status check(const PartialCall& call) const;
  Status check_memory(const PartialCall& call) const;

  Fabric& fabric;
  Memory memory;
  Contacts contacts;
  Runner runner;
  partial::PartialProtocol protocol;
  std::deque<std::unique_ptr<PartialOperation>> operations;  // in the order of their numbers
  std::uint64_t last_number = 0;
  std::uint64_t ended = 0;
  std::uint64_t failed = 0;
  bool is_inside = false;  // in advance()
  std::optional<Fabric::Task> task;
};

Status PartialAllReduce::Impl::check(const PartialCall& call) const {
  if (call.number <= last_number || call.number >= partial::kLastNumber) {
    return {Code::kInvalidArgument,
            fmt::format("partial all-reduce {} after {}: numbers grow, and are below 2^39",
                        call.number, last_number)};
  }
  for (const Rank member : call.members) {
    if (member.value() < 0 || member.value() >= fabric.size()) {
      return {Code::kOutOfRange, fmt::format("partial all-reduce {}: member {} in a job of {}",
                                             call.number, member.value(), fabric.size())};
    }
    if (std::ranges::count(call.members, member) > 1) {
      return {Code::kInvalidArgument,
              fmt::format("partial all-reduce {}: member {} twice", call.number, member.value())};
    }
  }
  if (std::ranges::count(call.members, fabric.rank()) == 0) {
    return {Code::kInvalidArgument, fmt::format("partial all-reduce {}: rank {} is no member",
                                                call.number, fabric.rank().value())};
  }
  if (call.count > 0 && (call.input == nullptr || call.output == nullptr)) {
    return {Code::kInvalidArgument,
            fmt::format("partial all-reduce {}: no memory given", call.number)};
  }
  // No memory is that long, and sizes in bytes must not overflow.
  if (call.count > static_cast<std::size_t>(PTRDIFF_MAX) / size_of(call.reduction.type)) {
    return {Code::kInvalidArgument,
            fmt::format("partial all-reduce {}: {} elements of {} are longer than any memory",
                        call.number, call.count, to_string(call.reduction.type))};
  }
  return Status::ok();
}

Status PartialAllReduce::Impl::check_memory(const PartialCall& call) const {
  const std::size_t bytes = call.count * size_of(call.reduction.type);
  if (call.input != call.output && overlap(call.input, bytes, call.output, bytes)) {
    return {Code::kInvalidArgument,
            fmt::format("partial all-reduce {}: input and output overlap, and are not the same",
                        call.number)};
  }
  const bool has_windows =
      memory.find(call.input, bytes) != nullptr && memory.find(call.output, bytes) != nullptr;
  if (memory.is_on_gpu() && bytes > 0 && !has_windows) {
    return {Code::kInvalidArgument,
            fmt::format("partial all-reduce {}: on a GPU, it takes memory from allocate() only",
                        call.number)};
  }
  return Status::ok();
}

PartialAllReduce::PartialAllReduce(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PartialAllReduce::~PartialAllReduce() {
  Fabric& fabric = impl_->fabric;
  impl_->task.reset();
  impl_->settle();
  if (!impl_->is_done()) fabric.keep_until_done(std::move(impl_));
}

Result<std::unique_ptr<PartialAllReduce>> PartialAllReduce::create(Fabric& fabric,
                                                                   PartialOptions options) {
  if (!options.algorithm.empty()) {
    DUNLIN_ASSIGN(const Algorithm* const algorithm,
                  find_algorithm(Collective::kAllReduce, options.algorithm));
    if (algorithm->needs_groups) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("'{}' needs groups among the members, which have none", options.algorithm));
    }
  }
  const std::size_t scratch_bytes = options.scratch_bytes / kScratchAlignment * kScratchAlignment;
  if (scratch_bytes == 0) {
    return Status(Code::kInvalidArgument, fmt::format("{} bytes of scratch, less than {}",
                                                      options.scratch_bytes, kScratchAlignment));
  }
  const Terms terms{scratch_bytes, options.segment_bytes, options.algorithm,
                    options.gpu.has_value()};
  std::shared_ptr<GpuDriver> driver;
  std::unique_ptr<Compute> compute;
  if (options.gpu) {
    DUNLIN_ASSIGN(driver, load_cuda_driver());
    DUNLIN_ASSIGN(auto kernels, GpuKernels::load(driver, *options.gpu));
    DUNLIN_ASSIGN(compute, GpuCompute::create(fabric, *driver, std::move(kernels)));
  } else {
    compute = std::make_unique<KernelCompute>();
  }
  auto impl = std::make_unique<Impl>(fabric, options, terms, std::move(compute));
  if (options.gpu) impl->memory.use_gpu(std::move(driver), *options.gpu);
  // The scratch comes first, so that peers that find the offer find it, too.
  DUNLIN_TRY(impl->runner.allocate_scratch());
  DUNLIN_TRY(impl->contacts.publish());
  impl->start_task();
  return std::unique_ptr<PartialAllReduce>(new PartialAllReduce(std::move(impl)));
}

Result<std::span<std::byte>> PartialAllReduce::allocate(std::size_t bytes) {
  DUNLIN_ASSIGN(const OwnWindow* const window, impl_->memory.allocate(bytes));
  return std::span(window->data(), bytes);
}

Status PartialAllReduce::free(std::span<std::byte> memory) {
  const OwnWindow* const window = impl_->memory.find(memory.data(), 0);
  for (const auto& operation : impl_->operations) {
    const bool is_on_it =
        operation->task.input_window == window || operation->task.output_window == window;
    if (window == nullptr || operation->is_over() || !is_on_it) continue;
    return {Code::kInvalidArgument,
            fmt::format("partial all-reduce {} is on this memory", operation->number())};
  }
  return impl_->memory.free(memory.data());
}

Status PartialAllReduce::copy(std::span<std::byte> to, std::span<const std::byte> from) {
  if (to.size() != from.size()) {
    return {Code::kInvalidArgument,
            fmt::format("a copy of {} bytes to memory of {} bytes", from.size(), to.size())};
  }
  if (from.empty()) return Status::ok();
  for (const std::byte* const data : {static_cast<const std::byte*>(to.data()), from.data()}) {
    if (impl_->memory.find(data, from.size()) == nullptr) {
      return {Code::kInvalidArgument,
              fmt::format("a copy of {} bytes, which are not all in memory from allocate()",
                          from.size())};
    }
  }
  if (overlap(to.data(), to.size(), from.data(), from.size()))
    return {Code::kInvalidArgument, "a copy of memory that overlaps"};
  return impl_->memory.copy(to.data(), from.data(), from.size());
}

Status PartialAllReduce::check(const PartialCall& call) const {
  return impl_->check(call);
}

Result<PartialRequest> PartialAllReduce::start(const PartialCall& call) {
  DUNLIN_TRY(impl_->check(call));
  DUNLIN_TRY(impl_->check_memory(call));
  impl_->operations.push_back(impl_->protocol.prepare(call, impl_->memory));
  impl_->last_number = call.number;
  impl_->progress();
  return PartialRequest{call.number};
}

void PartialAllReduce::progress() {
  impl_->fabric.progress();
  impl_->progress();
}

Status PartialAllReduce::test(PartialRequest request) {
  progress();
  const PartialOperation* const operation = impl_->find(request.number);
  if (operation == nullptr) {
    return {Code::kNotFound, fmt::format("partial all-reduce {} has ended", request.number)};
  }
  if (!operation->is_over()) return Status::busy();
  Status outcome = operation->outcome;
  std::erase_if(impl_->operations, [&](const auto& each) { return each.get() == operation; });
  return outcome;
}

Status PartialAllReduce::wait(PartialRequest request, Duration timeout) {
  Status status = impl_->fabric.wait(
      [&] { return test(request); },
      transport::Awaiting{[&] { return awaited(request); }, [&] { return blocker(request); }},
      timeout);
  PartialOperation* operation = impl_->find(request.number);
  if (operation == nullptr) return status;
  status = impl_->protocol.name_stalled(*operation, std::move(status));
  // The operation isn't over: it is aborted.
  operation->refuse(status);
  impl_->progress();
  operation = impl_->find(request.number);
  if (operation == nullptr) return status;
  if (operation->is_over()) {
    std::erase_if(impl_->operations, [&](const auto& each) { return each.get() == operation; });
  } else {
    operation->is_forgotten = true;  // it is aborted when its turn comes
  }
  return status;
}

Status PartialAllReduce::run(const PartialCall& call) {
  DUNLIN_ASSIGN(const PartialRequest request, start(call));
  return wait(request, impl_->fabric.config().deadline);
}

std::vector<Awaited> PartialAllReduce::awaited(PartialRequest request) const {
  if (impl_->find(request.number) == nullptr) return {};
  const PartialOperation* const operation = impl_->front();
  return operation == nullptr ? std::vector<Awaited>() : impl_->protocol.awaited(*operation);
}

Rank PartialAllReduce::blocker(PartialRequest request) const {
  if (impl_->find(request.number) == nullptr) return {};
  const PartialOperation* const operation = impl_->front();
  return operation == nullptr ? Rank() : impl_->protocol.blocker(*operation);
}

PartialStatistics PartialAllReduce::statistics() const {
  PartialStatistics statistics;
  statistics.operations = impl_->ended;
  statistics.failures = impl_->failed;
  statistics.peers = impl_->contacts.met();
  statistics.programs_generated = impl_->runner.programs_generated();
  statistics.programs_found = impl_->runner.programs_found();
  statistics.programs_kept = impl_->runner.programs_kept();
  statistics.windows = impl_->memory.count();
  statistics.unsettled = impl_->runner.abandoned();
  return statistics;
}

}  // namespace dunlin::collective
