#include "tools/dunlin-sim/network/schedule_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace dunlin::simulate {

using collective::BufferKind;
using collective::Collective;
using collective::ExecutorPeer;
using collective::Stream;

Status TimedCompute::run(collective::Reduction reduction, std::span<const std::byte* const> inputs,
                         std::span<std::byte* const> targets, std::size_t count,
                         std::size_t divisor) {
  if (!is_busy_ && gamma_ > 0) {
    // The bytes are counted as in the cost model: those that are added to the first input, or, with
    // a single input, those that are copied.
    const std::size_t passes = std::max<std::size_t>(1, inputs.size() - 1);
    const double bytes = static_cast<double>(count * collective::size_of(reduction.type) * passes);
    const Duration work(std::llround(gamma_ * bytes * 1e9));
    done_at_ = node_->compute(work);
    is_busy_ = done_at_ > node_->clock().now();
  }
  if (is_busy_ && node_->clock().now() < done_at_) return Status::busy();
  is_busy_ = false;
  if (!is_phantom_) collective::reduce(reduction, inputs, targets, count, divisor);
  return Status::ok();
}

ScheduleRank::ScheduleRank(ScheduleWorld& world, collective::Program program)
    : world_(world),
      self_(program.rank),
      program_(std::move(program)),
      compute_(world.options_.gamma) {}

ScheduleRank::~ScheduleRank() = default;

std::size_t ScheduleRank::turns() const {
  return static_cast<std::size_t>(std::min<std::uint64_t>(world_.scenario_.steps, kTurns));
}

std::size_t ScheduleRank::size_of(BufferKind kind) const {
  const collective::Problem& problem = world_.options_.problem;
  switch (kind) {
    case BufferKind::kInput:
      return problem.input_count() * kElement;
    case BufferKind::kOutput:
      return problem.output_count() * kElement;
    case BufferKind::kScratch:
      return program_.scratch * kElement;
  }
  return 0;
}

std::size_t ScheduleRank::offset_of(BufferKind kind, std::size_t turn) const {
  const auto padded = [this](BufferKind of) { return transport::whole_cache_lines(size_of(of)); };
  // A broadcast has one buffer.
  const bool is_one = world_.options_.problem.collective == Collective::kBroadcast;
  const std::size_t output = is_one ? 0 : padded(BufferKind::kInput);
  if (kind == BufferKind::kInput) return 0;
  if (kind == BufferKind::kOutput) return output;
  return output + padded(BufferKind::kOutput) + turn * padded(BufferKind::kScratch);
}

std::size_t ScheduleRank::bytes() const {
  return std::max(offset_of(BufferKind::kScratch, turns()), transport::kCacheLine);
}

Status ScheduleRank::prepare(transport::sim::Network& network) {
  const std::size_t cells = turns() * collective::kStreams * program_.peers.size();
  DUNLIN_ASSIGN(node_, transport::sim::Node::create(network, self_, cells));
  compute_.prepare(*node_, world_.is_phantom());
  executor_ = std::make_unique<collective::Executor>(node_->board(), compute_);
  const std::size_t size = bytes();
  if (world_.is_phantom()) {
    DUNLIN_ASSIGN(region_, node_->allocate_phantom(size));
  } else {
    memory_ = std::make_unique_for_overwrite<float[]>(size / kElement);
    DUNLIN_ASSIGN(auto memory, MemoryRegion::wrap(memory_.get(), size));
    region_ = node_->register_memory(std::move(memory));
  }
  peer_order_.resize(program_.peers.size());
  for (std::size_t i = 0; i < peer_order_.size(); ++i)
    peer_order_[i] = static_cast<std::uint32_t>(i);
  std::ranges::sort(peer_order_, {}, [this](std::uint32_t i) { return program_.peers[i]; });
  begins_after_ = world_.draw_skew();
  return Status::ok();
}

Result<std::size_t> ScheduleRank::index_of(int rank) const {
  const auto found = std::ranges::lower_bound(
      peer_order_, rank, {}, [this](std::uint32_t i) { return program_.peers[i]; });
  if (found != peer_order_.end() && program_.peers[*found] == rank) return *found;
  return Status(Code::kInternal,
                fmt::format("rank {} uses rank {} as a peer, but not the other way round", rank,
                            self_.value()));
}

transport::NotifyId ScheduleRank::cell(std::size_t turn, Stream stream, std::size_t peer) const {
  return transport::NotifyId(
      static_cast<std::uint32_t>((turn * program_.peers.size() + peer) * collective::kStreams +
                                 static_cast<std::size_t>(stream)));
}

Status ScheduleRank::connect() {
  turns_.resize(turns());
  for (Turn& turn : turns_) {
    turn.peers.resize(program_.peers.size());
    turn.buffers.resize(program_.peers.size());
  }
  for (std::size_t i = 0; i < program_.peers.size(); ++i) {
    const Rank rank(program_.peers[i]);
    const ScheduleRank& there = *world_.ranks_[rank.index()];
    DUNLIN_ASSIGN(const std::size_t self, there.index_of(self_.value()));
    DUNLIN_ASSIGN(transport::Link* const link, node_->link(rank));
    DUNLIN_ASSIGN(auto remote, node_->import_region(rank, *there.region_));
    for (std::size_t t = 0; t < turns_.size(); ++t) {
      ExecutorPeer& peer = turns_[t].peers[i];
      peer.rank = rank;
      for (const Stream stream : {Stream::kData, Stream::kControl}) {
        ExecutorPeer::Way& way = peer.ways[static_cast<std::size_t>(stream)];
        way.lane = stream == Stream::kData ? &link->data() : &link->control();
        way.theirs = there.cell(t, stream, self);
        way.ours = cell(t, stream, i);
      }
      for (const BufferKind kind :
           {BufferKind::kInput, BufferKind::kOutput, BufferKind::kScratch}) {
        const std::size_t offset = there.offset_of(kind, t);
        turns_[t].buffers[i][static_cast<std::size_t>(kind)] = {remote.get(), offset,
                                                                there.region_->data() + offset};
      }
    }
    remotes_.push_back(std::move(remote));
  }
  for (Turn& turn : turns_) {
    for (ExecutorPeer& peer : turn.peers) turn.pointers.push_back(&peer);
  }
  return Status::ok();
}

float* ScheduleRank::floats(BufferKind kind) const {
  return reinterpret_cast<float*>(region_->data() + offset_of(kind, 0));
}

Status ScheduleRank::start(std::uint64_t step) {
  const TimePoint now = node_->clock().now();
  step_ = step;
  started_at_ = now;
  StepFigures& figures = world_.steps_[step - 1];
  figures.first_start = std::min(figures.first_start, now);
  if (world_.is_checked()) fill();
  Turn& turn = turns_[step % turns_.size()];
  collective::ExecutorBinding binding;
  binding.program = &program_;
  binding.peers = turn.pointers;
  binding.buffers = turn.buffers;
  for (const BufferKind kind : {BufferKind::kInput, BufferKind::kOutput, BufferKind::kScratch}) {
    DUNLIN_ASSIGN(binding.own[static_cast<std::size_t>(kind)],
                  region_->slice(offset_of(kind, step % turns_.size()), size_of(kind)));
  }
  binding.reduction = {collective::DataType::kFloat32, collective::ReduceOp::kSum};
  binding.element = kElement;
  // The values depend on the step, so that a message of another step is noticed.
  binding.signature = step;
  binding.numbering = {collective::Numbering::kMostRoundBits, step / turns_.size()};
  binding.is_on_gpu = world_.is_phantom();  // the CPU can access neither
  return executor_->start(binding);
}

Status ScheduleRank::test() {
  Status status = executor_->test();
  has_failed_ = status.is_error();
  if (!status.is_ok()) return status;
  const TimePoint now = node_->clock().now();
  StepFigures& figures = world_.steps_[step_ - 1];
  figures.last_end = std::max(figures.last_end, now);
  figures.took.add(now - started_at_);
  return world_.is_checked() ? verify() : Status::ok();
}

std::vector<transport::Awaited> ScheduleRank::awaited() const {
  const Rank peer = executor_->awaited();
  if (peer == Rank()) return {};
  return {
      {peer, fmt::format("its part of {} #{} ({})", to_string(world_.options_.problem.collective),
                         step_, world_.options_.algorithm->name)}};
}

bool ScheduleRank::depends_on(Rank gone) const {
  has_failed_ = has_failed_ || world_.waits_for(self_, gone);
  return has_failed_;
}

void ScheduleRank::fill() {
  const collective::Problem& problem = world_.options_.problem;
  const bool is_root = problem.root == self_.value();
  const Pattern& pattern = world_.pattern();
  // Elements that no rank writes are noticed.
  std::fill_n(floats(BufferKind::kOutput), problem.output_count(),
              std::numeric_limits<float>::quiet_NaN());
  if (problem.collective == Collective::kBroadcast && !is_root) return;
  float* const input = floats(BufferKind::kInput);
  for (std::size_t e = 0; e < problem.input_count(); ++e)
    input[e] = pattern.element(self_.value(), step_, e);
}

Status ScheduleRank::verify() const {
  const collective::Problem& problem = world_.options_.problem;
  if (problem.collective == Collective::kReduce && problem.root != self_.value())
    return Status::ok();
  const float* const output = floats(BufferKind::kOutput);
  for (std::size_t e = 0; e < problem.output_count(); ++e) {
    const float wanted = world_.pattern().result(problem, self_.value(), step_, e);
    if (output[e] == wanted) continue;
    return {Code::kCorrupted,
            fmt::format("{} #{} ({}): element {} is {}, not {}", to_string(problem.collective),
                        step_, world_.options_.algorithm->name, e, output[e], wanted)};
  }
  return Status::ok();
}

}  // namespace dunlin::simulate
