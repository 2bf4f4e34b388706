#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/dunlin-perf/benchmarks/call_means.h"
#include "tools/dunlin-perf/benchmarks/collective.h"
#include "tools/dunlin-perf/benchmarks/pattern.h"

namespace dunlin::perf {
namespace {

using collective::Algorithm;
using collective::Collective;
using collective::Communicator;
using collective::Problem;

}  // namespace

std::optional<Collective> collective_of(Bench bench) {
  switch (bench) {
    case Bench::kAllReduce:
    case Bench::kOverlap:
      return Collective::kAllReduce;
    case Bench::kReduceScatter:
      return Collective::kReduceScatter;
    case Bench::kAllGather:
      return Collective::kAllGather;
    case Bench::kBroadcast:
      return Collective::kBroadcast;
    case Bench::kAllToAll:
      return Collective::kAllToAll;
    case Bench::kReduce:
      return Collective::kReduce;
    default:
      return std::nullopt;
  }
}

Status check_collective(const Shared& options) {
  const auto collective = collective_of(options.bench);
  if (!collective) return Status::ok();
  const CollectiveOptions& own = options.collective;
  DUNLIN_TRY(collective::parse_data_type(own.type).status());
  DUNLIN_TRY(collective::parse_reduce_op(own.op).status());
  const bool is_name = !own.algorithm.empty() && own.algorithm != "all";
  return is_name ? collective::find_algorithm(*collective, own.algorithm).status() : Status::ok();
}

const char* memory_name(const Shared& options) {
  switch (options.memory.kind) {
    case MemoryChoice::Kind::kHost:
      return "registered";
    case MemoryChoice::Kind::kWrapped:
      return "wrapped";
    case MemoryChoice::Kind::kAny:
      return "any";
    case MemoryChoice::Kind::kCuda:
      return "cuda";
  }
  return "?";
}

Result<std::unique_ptr<Subject>> Subject::create(Job& job, const Options& options) {
  DUNLIN_TRY(check_collective(options));
  std::unique_ptr<Subject> subject(new Subject(job, options));
  collective::CommunicatorOptions wanted;
  if (job.gpu() != nullptr) {
    wanted.name = "gpus";
    wanted.gpu = job.gpu()->device().number;
    DUNLIN_ASSIGN(subject->host_communicator_, Communicator::create(job.fabric(), {}));
  }
  DUNLIN_ASSIGN(subject->communicator_, Communicator::create(job.fabric(), wanted));
  subject->call_.collective = *collective_of(options.bench);
  DUNLIN_ASSIGN(subject->call_.reduction.type,
                collective::parse_data_type(options.collective.type));
  DUNLIN_ASSIGN(subject->call_.reduction.op, collective::parse_reduce_op(options.collective.op));
  DUNLIN_TRY(subject->allocate());
  return subject;
}

std::size_t Subject::blocks() const {
  const Problem one{call_.collective, job_.size(), 1, 0};
  return std::max(one.input_count(), one.output_count());
}

std::size_t Subject::count_to_size(std::size_t count) const {
  return count * blocks() * size_of(call_.reduction.type);
}

bool Subject::is_in_place() const {
  if (call_.collective == Collective::kBroadcast) return true;
  return call_.collective != Collective::kAllToAll && options_.collective.is_in_place;
}

Status Subject::allocate() {
  resize(*std::ranges::max_element(options_.sizes));
  const std::size_t bytes = std::max<std::size_t>(2 * size(), 1);
  if (options_.memory.kind != MemoryChoice::Kind::kAny) {
    DUNLIN_ASSIGN(memory_, communicator_->allocate(bytes));
  } else {
    other_.resize(bytes);
    memory_ = other_;
  }
  return Status::ok();
}

void Subject::resize(std::size_t size) {
  const std::size_t each = blocks() * size_of(call_.reduction.type);
  call_.count = (size + each - 1) / each;
  if (memory_.empty()) return;
  const Problem problem{call_.collective, job_.size(), call_.count, 0};
  const std::size_t offset =
      problem.in_place_offset(job_.rank().value()) * size_of(call_.reduction.type);
  std::byte* const input = memory_.data();
  if (!is_in_place()) {
    call_.input = input;
    call_.output = input + count_to_size(call_.count);
  } else if (call_.collective == Collective::kReduceScatter) {
    call_.input = input;
    call_.output = input + offset;
  } else {
    call_.input = input + offset;
    call_.output = input;
  }
}

Result<std::vector<std::string_view>> Subject::algorithms(std::string_view wanted) {
  if (wanted != "all") return std::vector<std::string_view>{wanted};
  std::vector<std::string_view> suitable;
  for (const Algorithm& algorithm : collective::algorithms()) {
    if (algorithm.collective != call_.collective) continue;
    choose(algorithm.name);
    if (!communicator_->choose(call_)) continue;
    // An algorithm that needs another shape of the job fails before it does anything, on all ranks.
    const Status status = once();
    if (status.code() == Code::kInvalidArgument) continue;
    DUNLIN_TRY(Status(status));
    suitable.push_back(algorithm.name);
  }
  return suitable;
}

std::string_view Subject::algorithm() const {
  const auto chosen = communicator_->choose(call_);
  return chosen ? (*chosen)->name : "";
}

double Subject::bus_factor() const {
  const double ranks = job_.size();
  switch (call_.collective) {
    case Collective::kAllReduce:
      return 2 * (ranks - 1) / ranks;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return (ranks - 1) / ranks;
    default:
      return 1;
  }
}

Status Subject::once() {
  if (options_.poll != Poll::kSpin) return communicator_->run(call_);
  DUNLIN_ASSIGN(const collective::CollectiveRequest request, communicator_->start(call_));
  return poll_call(job_, "a collective", [&] { return communicator_->test(request); });
}

std::span<std::byte> Subject::image() {
  if (job_.gpu() == nullptr) return memory_;
  staged_.resize(memory_.size());
  return staged_;
}

Status Subject::store() {
  return job_.gpu() == nullptr ? Status::ok() : job_.gpu()->write(memory_.data(), staged_);
}

Status Subject::load() {
  return job_.gpu() == nullptr ? Status::ok() : job_.gpu()->read(staged_, memory_.data());
}

Status Subject::clear() {
  std::ranges::fill(image(), std::byte{0});
  return store();
}

Status Subject::check() {
  const Problem problem{call_.collective, job_.size(), call_.count, call_.root};
  const collective::Reduction reduction = call_.reduction;
  const std::size_t each = size_of(reduction.type);
  // Elements that the call does not write are noticed.
  std::ranges::fill(image(), std::byte{0x5a});
  std::byte* const input = image().data() + offset_of(call_.input);
  for (std::size_t e = 0; e < problem.input_count(); ++e) {
    const std::uint64_t element =
        encode(reduction.type, pattern_value(reduction.op, job_.rank().value(), job_.size(), e));
    std::memcpy(input + e * each, &element, each);
  }
  DUNLIN_TRY(store());
  DUNLIN_TRY(communicator_->barrier());
  DUNLIN_TRY(once());
  DUNLIN_TRY(load());
  const bool has_result =
      call_.collective != Collective::kReduce || job_.rank().value() == call_.root;
  if (has_result) DUNLIN_TRY(compare());
  return communicator_->barrier();
}

Status Subject::compare() {
  const Problem problem{call_.collective, job_.size(), call_.count, call_.root};
  const collective::Reduction reduction = call_.reduction;
  const std::size_t each = size_of(reduction.type);
  const auto rank = static_cast<std::uint64_t>(job_.rank().value());
  const std::byte* const output = image().data() + offset_of(call_.output);
  for (std::size_t e = 0; e < problem.output_count(); ++e) {
    const int block = static_cast<int>(e / call_.count);
    const std::size_t within = e % call_.count;
    const auto from = [&](int source, std::uint64_t index) {
      return pattern_value(reduction.op, source, job_.size(), index);
    };
    const std::int64_t value = call_.collective == Collective::kBroadcast   ? from(call_.root, e)
                               : call_.collective == Collective::kAllGather ? from(block, within)
                               : call_.collective == Collective::kAllToAll
                                   ? from(block, rank * call_.count + within)
                               : call_.collective == Collective::kReduceScatter
                                   ? pattern_result(reduction, job_.size(), rank * call_.count + e)
                                   : pattern_result(reduction, job_.size(), e);
    const std::uint64_t wanted = encode(reduction.type, value);
    if (std::memcmp(output + e * each, &wanted, each) == 0) continue;
    return {Code::kCorrupted,
            fmt::format("wrong data from {} '{}' of {} elements: element {} "
                        "isn't {}",
                        to_string(call_.collective), algorithm(), call_.count, e, value)};
  }
  return Status::ok();
}

nlohmann::ordered_json Subject::facts() const {
  nlohmann::ordered_json json{
      {"count", call_.count},       {"type", to_string(call_.reduction.type)},
      {"in_place", is_in_place()},  {"memory", memory_name(options_)},
      {"checked", options_.checks}, {"algorithm", algorithm()}};
  if (Problem{call_.collective, 2, 1, 0}.reduces()) json["op"] = to_string(call_.reduction.op);
  // The collectives wait by themselves unless the program polls.
  if (options_.poll != Poll::kSpin) json["wait"] = "library";
  return json;
}

}  // namespace dunlin::perf
