#include "collectives/neighbor/hierarchical.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace dunlin::collective {

namespace {

// Up to this size one step less saves more time than sending a part only.
constexpr std::size_t kWholeBytes = std::size_t{16} << 10;

}  // namespace

struct HierarchicalExchange::Operation {
  enum class Phase : std::uint8_t { kWaiting, kMean, kExchange, kExchanged, kGather, kOver };

  std::uint64_t number = 0;
  Phase phase = Phase::kWaiting;
  std::string name;
  Call mean;
  NeighborCall crossing;           // exchanges this rank's part with ranks of its place
  std::optional<Call> gather;      // none if the part is the whole
  std::vector<std::byte> padding;  // for data that can't be divided evenly among the ranks
  std::byte* output = nullptr;
  std::size_t bytes = 0;    // size of the output
  CollectiveRequest local;  // for `mean` or `gather`
  NeighborRequest request;

  bool is_over() const { return phase == Phase::kOver; }
  bool has_begun_to_cross() const { return phase >= Phase::kExchange; }
  bool has_begun_to_gather() const { return phase >= Phase::kGather || !gather; }
};

HierarchicalExchange::HierarchicalExchange(transport::Fabric& fabric, NeighborExchange& exchange,
                                           HierarchicalOptions options)
    : fabric_(fabric), exchange_(exchange), options_(std::move(options)) {}

HierarchicalExchange::~HierarchicalExchange() = default;

Result<std::unique_ptr<HierarchicalExchange>> HierarchicalExchange::create(
    transport::Fabric& fabric, NeighborExchange& exchange, HierarchicalOptions options) {
  DUNLIN_TRY(check(options.machines, fabric.size()));
  std::unique_ptr<HierarchicalExchange> made(
      new HierarchicalExchange(fabric, exchange, std::move(options)));
  made->take_place();
  DUNLIN_TRY(made->connect());
  return made;
}

Status HierarchicalExchange::check(const std::vector<std::vector<Rank>>& machines, int size) {
  std::vector<bool> seen(static_cast<std::size_t>(size));
  std::size_t total = 0;
  for (std::size_t machine = 0; machine < machines.size(); ++machine) {
    if (machines[machine].size() != machines[0].size()) {
      return {Code::kInvalidArgument,
              fmt::format("machine {} has {} ranks and machine 0 has {}: all need as many", machine,
                          machines[machine].size(), machines[0].size())};
    }
    for (const Rank rank : machines[machine]) {
      const auto index = static_cast<std::size_t>(rank.value());
      if (rank.value() < 0 || index >= seen.size() || seen[index]) {
        return {Code::kInvalidArgument,
                fmt::format("rank {} of machine {} is in no job of {}, or in another place as well",
                            rank.value(), machine, size)};
      }
      seen[index] = true;
      ++total;
    }
  }
  if (total != seen.size()) {
    return {Code::kInvalidArgument,
            fmt::format("the machines have {} ranks, the job {}", total, seen.size())};
  }
  return Status::ok();
}

void HierarchicalExchange::take_place() {
  for (std::size_t machine = 0; machine < options_.machines.size(); ++machine) {
    const std::vector<Rank>& ranks = options_.machines[machine];
    const auto found = std::ranges::find(ranks, fabric_.rank());
    if (found == ranks.end()) continue;
    machine_ = static_cast<int>(machine);
    place_ = static_cast<int>(found - ranks.begin());
  }
}

Status HierarchicalExchange::connect() {
  CommunicatorOptions local{.name = fmt::format("{}/{}/means", options_.name, machine_),
                            .members = options_.machines[static_cast<std::size_t>(machine_)]};
  DUNLIN_ASSIGN(means_, Communicator::create(fabric_, local));
  local.name = fmt::format("{}/{}/gathers", options_.name, machine_);
  DUNLIN_ASSIGN(gathers_, Communicator::create(fabric_, local));
  return Status::ok();
}

Result<HierarchicalRequest> HierarchicalExchange::start(const NeighborCall& call) {
  DUNLIN_TRY(neighbor::check(call, true, Rank(machine_), machines()));
  DUNLIN_TRY(failure_);
  operations_.push_back(prepare(call));
  const HierarchicalRequest request{operations_.back()->number = next_++};
  progress();
  return request;
}

std::unique_ptr<HierarchicalExchange::Operation> HierarchicalExchange::prepare(
    const NeighborCall& call) {
  auto operation = std::make_unique<Operation>();
  const auto ranks = static_cast<std::size_t>(means_->size());
  const auto place = static_cast<std::size_t>(place_);
  const std::size_t element = size_of(call.type);
  operation->name = fmt::format("{}: {}", options_.name, call.name);
  operation->output = static_cast<std::byte*>(call.output);
  operation->bytes = call.count * element;

  NeighborCall& crossing = operation->crossing = call;
  crossing.name = operation->name;
  const auto to_rank = [&](WeightedRank& each) {
    each.rank = options_.machines[static_cast<std::size_t>(each.rank.value())][place];
  };
  std::ranges::for_each(crossing.sources, to_rank);
  std::ranges::for_each(crossing.destinations, to_rank);

  const Reduction mean{call.type, ReduceOp::kAverage};
  if (ranks == 1 || operation->bytes <= kWholeBytes) {
    operation->mean = {Collective::kAllReduce, call.input, call.output, call.count, mean};
    operation->mean.name = operation->name;
    crossing.input = call.output;
    return operation;
  }
  const std::size_t part = (call.count + ranks - 1) / ranks;
  std::byte* whole = operation->output;
  if (call.count % ranks != 0) {
    operation->padding.resize(part * ranks * element);
    whole = operation->padding.data();
  }
  if (whole != call.input) std::memcpy(whole, call.input, operation->bytes);
  std::byte* const mine = whole + place * part * element;
  operation->mean = {Collective::kReduceScatter, whole, mine, part, mean};
  operation->mean.name = operation->name;
  crossing.input = mine;
  crossing.output = mine;
  crossing.count = part;
  operation->gather = Call{Collective::kAllGather, mine, whole, part, {call.type}};
  return operation;
}

// Makes as many steps as can be made; kBusy before the next one. `may_cross`, `may_gather`: all
// earlier calls that cross, or gather, have begun to.
Status HierarchicalExchange::advance(Operation& operation, bool may_cross, bool may_gather) {
  using Phase = Operation::Phase;
  switch (operation.phase) {
    case Phase::kWaiting: {
      DUNLIN_ASSIGN(operation.local, means_->start(operation.mean));
      operation.phase = Phase::kMean;
      [[fallthrough]];
    }
    case Phase::kMean: {
      DUNLIN_TRY(means_->test(operation.local));
      // Calls of one name are matched by the order in which they cross.
      if (!may_cross) return Status::busy();
      DUNLIN_ASSIGN(operation.request, exchange_.start(operation.crossing));
      operation.phase = Phase::kExchange;
      [[fallthrough]];
    }
    case Phase::kExchange:
      DUNLIN_TRY(exchange_.outcome(operation.request));
      operation.phase = Phase::kExchanged;
      [[fallthrough]];
    case Phase::kExchanged: {
      if (!operation.gather) return Status::ok();
      if (!may_gather) return Status::busy();
      DUNLIN_ASSIGN(operation.local, gathers_->start(*operation.gather));
      operation.phase = Phase::kGather;
      [[fallthrough]];
    }
    case Phase::kGather:
      DUNLIN_TRY(gathers_->test(operation.local));
      if (!operation.padding.empty()) {
        std::memcpy(operation.output, operation.padding.data(), operation.bytes);
      }
      [[fallthrough]];
    case Phase::kOver:
      return Status::ok();
  }
  return Status::ok();
}

void HierarchicalExchange::progress() {
  if (!failure_.is_ok()) return;
  bool may_start = true;
  bool may_cross = true;
  bool may_gather = true;
  if (exchange_.outstanding() > 0) exchange_.progress();
  for (const auto& each : operations_) {
    Operation& operation = *each;
    const bool is_waiting = operation.phase == Operation::Phase::kWaiting;
    if (operation.is_over() || (is_waiting && !may_start)) continue;
    if (Status status = advance(operation, may_cross, may_gather); status.is_ok()) {
      operation.phase = Operation::Phase::kOver;
    } else if (!status.is_busy()) {
      fail(std::move(status));
      return;
    }
    may_start = operation.phase != Operation::Phase::kWaiting;
    may_cross = may_cross && operation.has_begun_to_cross();
    may_gather = may_gather && operation.has_begun_to_gather();
  }
  // Calls that have begun to cross in this round share messages.
  if (exchange_.outstanding() > 0) exchange_.progress();
}

void HierarchicalExchange::fail(Status status) {
  failure_ = std::move(status);
  // The memory of all calls is the callers' again. This ends the exchanges.
  for (const auto& operation : operations_) {
    if (operation->phase != Operation::Phase::kExchange) continue;
    (void)exchange_.wait(operation->request, Duration::zero());
  }
  // Ends those within the machine.
  means_.reset();
  gathers_.reset();
}

HierarchicalExchange::Operation* HierarchicalExchange::find(HierarchicalRequest request) const {
  const auto found = std::ranges::find_if(
      operations_, [&](const auto& each) { return each->number == request.number; });
  return found == operations_.end() ? nullptr : found->get();
}

Status HierarchicalExchange::test(HierarchicalRequest request) {
  progress();
  const Operation* const operation = find(request);
  if (operation == nullptr) {
    return {Code::kNotFound, fmt::format("request {} has ended", request.number)};
  }
  Status outcome = operation->is_over() ? Status::ok() : failure_;
  if (!operation->is_over() && failure_.is_ok()) return Status::busy();
  std::erase_if(operations_, [&](const auto& each) { return each.get() == operation; });
  return outcome;
}

std::vector<transport::Awaited> HierarchicalExchange::awaited(HierarchicalRequest request) const {
  const Operation* const found = find(request);
  if (found == nullptr) return {};
  if (found->phase == Operation::Phase::kExchange) return exchange_.awaited(found->request);
  std::vector<transport::Awaited> all;
  for (const Rank rank : options_.machines[static_cast<std::size_t>(machine_)]) {
    // A rank that is gone fails the call in the next test().
    if (rank == fabric_.rank() || !fabric_.peers().is_present(rank)) continue;
    all.push_back({rank, fmt::format("\"{}\"", found->name)});
  }
  return all;
}

Rank HierarchicalExchange::blocker(HierarchicalRequest request) const {
  const Operation* const found = find(request);
  if (found == nullptr) return {};
  if (found->phase == Operation::Phase::kExchange) return exchange_.blocker(found->request);
  for (const Rank rank : options_.machines[static_cast<std::size_t>(machine_)]) {
    if (rank != fabric_.rank() && fabric_.peers().is_present(rank)) return rank;
  }
  return {};
}

Status HierarchicalExchange::wait(HierarchicalRequest request, Duration timeout) {
  return fabric_.wait(
      [&] { return test(request); },
      transport::Awaiting{[&] { return awaited(request); }, [&] { return blocker(request); }},
      timeout);
}

Status HierarchicalExchange::run(const NeighborCall& call) {
  DUNLIN_ASSIGN(const HierarchicalRequest request, start(call));
  return wait(request, fabric_.config().deadline);
}

}  // namespace dunlin::collective
