#include "collectives/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "collectives/communicator/operations.h"
#include "collectives/expiry.h"
#include "collectives/member_watch.h"
#include "collectives/schedule/choose.h"
#include "runtime/topology.h"

namespace dunlin::collective {

using transport::Fabric;

namespace {

constexpr int kLooksBeforeWaiting = 32;

// Where ranks are not to spin, as where they share cores: none. Whoever is waited for may need this
// one.
int looks_before_waiting(Fabric& fabric) {
  const int local_ranks = fabric.bootstrap().job().local_size;
  const WaitPolicy policy =
      WaitPolicy::from(fabric.config(), local_ranks, cores_shared_by(local_ranks));
  return policy.spins == 0 ? 0 : kLooksBeforeWaiting;
}

using Forced = std::array<std::string, std::size(kAllCollectives)>;  // by collective

// "all-reduce=ring,broadcast=tree".
Result<Forced> parse_forced(std::string_view text) {
  Forced forced;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const auto equals = word.find('=');
    if (equals == word.npos) {
      return Status(Code::kInvalidArgument,
                    fmt::format("DUNLIN_ALGORITHMS: '{}' is not COLLECTIVE=ALGORITHM", word));
    }
    DUNLIN_ASSIGN(const Collective collective, parse_collective(word.substr(0, equals)));
    DUNLIN_ASSIGN(const Algorithm* const algorithm,
                  find_algorithm(collective, word.substr(equals + 1)));
    forced[static_cast<std::size_t>(collective)] = algorithm->name;
  }
  return forced;
}

}  // namespace

// Lives on, retired, while lanes still work on its memory.
class Communicator::Impl final : public transport::Retired {
 public:
  explicit Impl(std::unique_ptr<Members> members)
      : group(std::move(members)),
        operations(*group),
        watch(group->fabric(), group->options().members),
        looks(looks_before_waiting(group->fabric())) {}
  bool is_done() const override { return operations.is_quiet(); }

  std::unique_ptr<Members> group;
  Operations operations;
  MemberWatch watch;
  int looks;  // before a wait that gives the core away
  Forced forced;
  int splits = 0;
  std::uint64_t seen = 0;  // version of the peer table
  bool is_anybody_gone = false;
};

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Communicator::~Communicator() {
  Fabric& fabric = impl_->group->fabric();
  if (!impl_->is_done()) fabric.retire(std::move(impl_));
}

Result<std::unique_ptr<Communicator>> Communicator::create(Fabric& fabric,
                                                           CommunicatorOptions options) {
  DUNLIN_ASSIGN(auto communicator, prepare(fabric, std::move(options)));
  DUNLIN_TRY(communicator->connect());
  return communicator;
}

Result<std::unique_ptr<Communicator>> Communicator::prepare(Fabric& fabric,
                                                            CommunicatorOptions options) {
  DUNLIN_ASSIGN(auto forced, parse_forced(fabric.config().algorithms));
  DUNLIN_ASSIGN(auto group, Members::prepare(fabric, std::move(options)));
  auto impl = std::make_unique<Impl>(std::move(group));
  impl->forced = std::move(forced);
  return std::unique_ptr<Communicator>(new Communicator(std::move(impl)));
}

Status Communicator::connect() {
  return connect(impl_->group->fabric().config().deadline);
}

Status Communicator::connect(Duration patience) {
  return impl_->group->connect(impl_->group->fabric().clock().now() + patience);
}

int Communicator::rank() const {
  return impl_->group->rank();
}
int Communicator::size() const {
  return impl_->group->size();
}
bool Communicator::is_all_mapped() const {
  return impl_->group->is_all_mapped();
}

Result<std::span<std::byte>> Communicator::allocate(std::size_t bytes) {
  DUNLIN_ASSIGN(const Window* const window, impl_->group->windows().allocate(bytes));
  return std::span(window->data(), bytes);
}

Status Communicator::free(std::span<std::byte> memory) {
  return impl_->group->windows().free(memory.data());
}

Result<std::shared_ptr<MemoryRegion>> Communicator::owner_of(
    std::span<const std::byte> memory) const {
  const Window* const window = impl_->group->windows().find(memory.data(), memory.size());
  if (window == nullptr) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' has not allocated this memory", impl_->group->options().name));
  }
  return window->memory->memory();
}

Result<const Algorithm*> Communicator::choose(const Call& call) const {
  const Members& group = *impl_->group;
  const std::string& forced = impl_->forced[static_cast<std::size_t>(call.collective)];
  const std::string_view name = call.algorithm.empty() ? forced : call.algorithm;
  if (!name.empty()) {
    DUNLIN_ASSIGN(const Algorithm* const named, find_algorithm(call.collective, name));
    if (!named->needs_mapped_peers || is_all_mapped()) return named;
    return Status(Code::kInvalidArgument,
                  fmt::format("{} '{}' needs all ranks on one host, over shm",
                              to_string(call.collective), named->name));
  }
  const std::size_t element = size_of(call.reduction.type);
  if (const TunedChoice* const tuned = group.tuning().find(call.collective, call.count * element)) {
    return find_algorithm(call.collective, tuned->algorithm);
  }
  return choose_algorithm({call.collective, size(), call.count, call.root}, element,
                          is_all_mapped());
}

Fabric& Communicator::fabric() {
  return impl_->group->fabric();
}
TuningShape Communicator::shape() const {
  return impl_->group->tuning_shape();
}
const Grouping& Communicator::hosts() const {
  return impl_->group->hosts();
}
bool Communicator::suits(const Algorithm& algorithm) const {
  return impl_->group->suits(algorithm);
}
Result<Program> Communicator::program(const Algorithm& algorithm, const Problem& problem,
                                      std::size_t element, int rank) const {
  return generate(algorithm, problem, impl_->group->shape_for(element), rank);
}
void Communicator::use(Tuning tuning) {
  impl_->group->use(std::move(tuning));
}

Result<Request> Communicator::start(const Call& call) {
  Request request;
  if (!impl_->operations.repeat(call, request)) {
    DUNLIN_ASSIGN(const Algorithm* const algorithm, choose(call));
    DUNLIN_ASSIGN(request, impl_->operations.post(call, *algorithm));
  }
  DUNLIN_TRY(impl_->operations.progress());
  return request;
}

void Communicator::progress() {
  impl_->group->fabric().progress();
  (void)impl_->operations.progress();  // whoever waits is told
}

Status Communicator::test(const Request& request) {
  impl_->group->fabric().progress();
  DUNLIN_TRY(impl_->operations.progress());
  if (impl_->operations.is_over(request)) return Status::ok();
  // Losses are looked for by whoever waits, and this caller may never come to that.
  const PeerTable& peers = impl_->group->fabric().peers();
  if (const std::uint64_t version = peers.version(); version != impl_->seen) {
    impl_->seen = version;
    impl_->is_anybody_gone = peers.is_anybody_gone();
  }
  if (!impl_->is_anybody_gone) return Status::busy();
  Status status = wait(request, Duration::zero());
  return is_expiry(status) ? Status::busy() : status;
}

Status Communicator::wait(const Request& request, Duration timeout) {
  return wait(request, timeout, {});
}

Status Communicator::wait(const Request& request, Duration timeout,
                          const std::function<Status()>& pause) {
  Operations& operations = impl_->operations;
  // Also where a member has died since.
  if (operations.is_over(request)) return Status::ok();
  const auto look = [&]() -> Status {
    DUNLIN_TRY(operations.progress());
    if (pause && !operations.is_over(request)) DUNLIN_TRY(pause());
    return operations.is_over(request) ? Status::ok() : Status::busy();
  };
  // What takes no longer than a cache line's way is not worth a look at the clock.
  for (int i = 0; i < impl_->looks; ++i) {
    Status status = look();
    if (MemberWatch::is_loss(status)) break;  // it comes again, and is explained
    if (!status.is_busy()) return status;
    impl_->group->fabric().progress();
    cpu_relax();
  }
  return impl_->watch.wait(
      look, [&] { return operations.awaited(); }, timeout);
}

std::vector<transport::Awaited> Communicator::awaited() const {
  return impl_->operations.awaited();
}

Status Communicator::run(const Call& call) {
  auto request = start(call);
  while (!request && request.status().is_busy()) {
    // The queue is full: the oldest calls make room.
    progress();
    request = start(call);
  }
  if (!request && MemberWatch::is_loss(request.status())) {
    return impl_->watch.wait([&] { return request.status(); },
                             [&] { return impl_->operations.awaited(); },
                             impl_->group->fabric().config().deadline);
  }
  if (!request) return std::move(request).status();
  return wait(*request, impl_->group->fabric().config().deadline);
}

Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  struct Choice {
    std::int32_t color = 0;
    std::int32_t key = 0;
  };
  const Choice own{color, key};
  std::vector<Choice> choices(static_cast<std::size_t>(size()));
  DUNLIN_TRY(all_gather(&own, choices.data(), sizeof own / sizeof(std::int32_t), DataType::kInt32));
  std::vector<int> order;
  for (int rank = 0; rank < size(); ++rank) {
    if (choices[static_cast<std::size_t>(rank)].color == color) order.push_back(rank);
  }
  std::ranges::stable_sort(order, {},
                           [&](int rank) { return choices[static_cast<std::size_t>(rank)].key; });
  const CommunicatorOptions& parent = impl_->group->options();
  CommunicatorOptions options;
  options.scratch_bytes = parent.scratch_bytes;
  options.segment_bytes = parent.segment_bytes;
  options.name = fmt::format("{}/{}.{}", parent.name, impl_->splits++, color);
  for (const int rank : order)
    options.members.push_back(parent.members[static_cast<std::size_t>(rank)]);
  return create(impl_->group->fabric(), std::move(options));
}

}  // namespace dunlin::collective
