#include "collectives/communicator/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "collectives/communicator/call_queue.h"
#include "collectives/schedule/choose.h"
#include "collectives/waiting/expiry.h"
#include "collectives/waiting/member_watch.h"
#include "collectives/waiting/outlasting.h"
#include "runtime/topology.h"

namespace dunlin::collective {

using transport::Fabric;

namespace {

// Polls before wait() starts to read the clock and may give the core away.
constexpr int kPollsBeforeWaiting = 32;

// Every n-th poll of a wait reads the clock, to look for members that make other calls; every poll
// does so after the first kQuickPolls, as the wait then yields or sleeps between polls.
constexpr int kPollsPerStallCheck = 16;
constexpr int kQuickPolls = 1024;
// The same for calls of test() and progress().
constexpr int kTestsPerStallCheck = 4;

// Returns 0 when ranks share cores: the peer may need this core.
int polls_before_waiting(Fabric& fabric) {
  const int local_ranks = fabric.bootstrap().job().local_size;
  const WaitPolicy policy =
      WaitPolicy::from(fabric.config(), local_ranks, cores_shared_by(local_ranks));
  return policy.spins == 0 ? 0 : kPollsBeforeWaiting;
}

// Sets a flag for its lifetime, unless it is set.
class Waiting {
 public:
  explicit Waiting(bool& flag) : flag_(flag), before_(std::exchange(flag, true)) {}
  ~Waiting() { flag_ = before_; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  bool& flag_;
  bool before_;
};

auto awaiting(const CallQueue& calls) {
  return transport::Awaiting{[&calls] { return calls.awaited(); },
                             [&calls] { return calls.blocker(); }};
}

using Forced = std::array<std::string, std::size(kAllCollectives)>;  // by collective

// Parses "all-reduce=ring,broadcast=tree".
Result<Forced> parse_forced(std::string_view text) {
  Forced forced;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const auto equals = word.find('=');
    if (equals == word.npos) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("DUNLIN_ALGORITHMS: '{}' is not of the form COLLECTIVE=ALGORITHM", word));
    }
    DUNLIN_ASSIGN(const Collective collective, parse_collective(word.substr(0, equals)));
    DUNLIN_ASSIGN(const Algorithm* const algorithm,
                  find_algorithm(collective, word.substr(equals + 1)));
    forced[static_cast<std::size_t>(collective)] = algorithm->name;
  }
  return forced;
}

}  // namespace

// Outlives the communicator, owned by the fabric, while lanes still access its memory.
class Communicator::Impl final : public transport::KeptUntilDone {
 public:
  explicit Impl(std::unique_ptr<Members> all)
      : members(std::move(all)),
        calls(*members, [this](const Call& call) { return choose(call); }),
        watch(members->fabric(), members->options().members),
        polls(polls_before_waiting(members->fabric())) {}
  // The communicator was destroyed, so nobody waits for its calls.
  void settle() override { calls.stop(); }
  bool is_done() const override { return calls.is_quiet(); }
  // Lets the calls advance whenever this process waits for something else.
  void start_task() {
    task.emplace(members->fabric(), [this] {
      // The errors stay; test() and wait() return them.
      if (!is_waiting && !calls.is_idle()) (void)calls.progress();
    });
  }
  Result<const Algorithm*> choose(const Call& call) const;
  Result<CollectiveRequest> begin(const Call& call);
  // A member may have left because another one has died. Given an error that names a member that
  // has left, returns one that names the dead member instead, and waits a moment for that news the
  // first time. Returns other errors unchanged.
  Status trace(Status error) {
    Fabric& fabric = members->fabric();
    const bool names_one_that_left = error.code() == Code::kPeerDead && error.peer() &&
                                     fabric.peers().state(*error.peer()) == PeerState::kLeft;
    if (!names_one_that_left) return error;
    const TimePoint now = fabric.clock().now();
    if (!std::exchange(has_traced, true))
      return watch.explain(std::move(error), awaiting(calls), now);
    Status death = watch.check(awaiting(calls), now);
    return death.is_ok() ? error : death;
  }
  // Looks for members that make other calls, from time to time. For callers that poll.
  Status look_around() {
    const bool is_due = ++tests % kTestsPerStallCheck == 0 || calls.is_in_doubt();
    return is_due ? calls.check_stall(members->fabric().clock().now()) : Status::ok();
  }

  std::unique_ptr<Members> members;
  CallQueue calls;
  MemberWatch watch;
  int polls;  // before a wait that may give the core away
  Forced forced;
  int splits = 0;
  bool has_traced = false;         // trace() has waited
  bool is_waiting = false;         // in a wait that advances the calls by itself
  std::uint32_t tests = 0;         // calls of look_around()
  std::uint64_t seen_version = 0;  // of the peer table
  bool is_anybody_gone = false;
  std::optional<Fabric::Task> task;
};

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Communicator::~Communicator() {
  impl_->task.reset();
  impl_->settle();
  Fabric& fabric = impl_->members->fabric();
  if (!impl_->is_done()) fabric.keep_until_done(std::move(impl_));
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
  DUNLIN_ASSIGN(auto members, Members::prepare(fabric, std::move(options)));
  auto impl = std::make_unique<Impl>(std::move(members));
  impl->forced = std::move(forced);
  impl->start_task();
  return std::unique_ptr<Communicator>(new Communicator(std::move(impl)));
}

Status Communicator::connect() {
  return connect(impl_->members->fabric().config().deadline);
}

Status Communicator::connect(Duration timeout) {
  return impl_->members->connect(impl_->members->fabric().clock().now() + timeout);
}

int Communicator::rank() const {
  return impl_->members->rank();
}
int Communicator::size() const {
  return impl_->members->size();
}
bool Communicator::is_all_mapped() const {
  return impl_->members->is_all_mapped();
}
bool Communicator::is_on_gpu() const {
  return impl_->members->is_on_gpu();
}

Result<std::span<std::byte>> Communicator::allocate(std::size_t bytes) {
  DUNLIN_ASSIGN(const Window* const window, impl_->members->windows().allocate(bytes));
  return std::span(window->data(), bytes);
}

Status Communicator::free(std::span<std::byte> memory) {
  return impl_->members->windows().free(memory.data());
}

Result<std::shared_ptr<MemoryRegion>> Communicator::owner_of(
    std::span<const std::byte> memory) const {
  const Window* const window = impl_->members->windows().find(memory.data(), memory.size());
  if (window == nullptr) {
    return Status(Code::kInvalidArgument,
                  fmt::format("communicator '{}' did not allocate this memory",
                              impl_->members->options().name));
  }
  return window->memory->memory();
}

Result<const Algorithm*> Communicator::choose(const Call& call) const {
  return impl_->choose(call);
}

Result<const Algorithm*> Communicator::Impl::choose(const Call& call) const {
  const std::string& named_by_user = forced[static_cast<std::size_t>(call.collective)];
  const std::string_view name = call.algorithm.empty() ? named_by_user : call.algorithm;
  if (!name.empty()) {
    DUNLIN_ASSIGN(const Algorithm* const named, find_algorithm(call.collective, name));
    if (!named->needs_mapped_peers || members->is_all_mapped()) return named;
    return Status(Code::kInvalidArgument,
                  fmt::format("{} '{}' needs all members on one host, over shm",
                              to_string(call.collective), named->name));
  }
  const std::size_t element = size_of(call.reduction.type);
  if (const TunedChoice* const tuned =
          members->tuning().find(call.collective, call.count * element)) {
    return find_algorithm(call.collective, tuned->algorithm);
  }
  return choose_algorithm({call.collective, members->size(), call.count, call.root}, element,
                          members->connections());
}

Fabric& Communicator::fabric() {
  return impl_->members->fabric();
}
TuningShape Communicator::shape() const {
  return impl_->members->tuning().shape;
}
const Grouping& Communicator::hosts() const {
  return impl_->members->hosts();
}
bool Communicator::suits(const Algorithm& algorithm) const {
  return impl_->members->suits(algorithm);
}
Result<Program> Communicator::program(const Algorithm& algorithm, const Problem& problem,
                                      std::size_t element, int rank) const {
  return generate(algorithm, problem, impl_->members->shape_for(element), rank);
}
void Communicator::use(Tuning tuning) {
  impl_->members->use(std::move(tuning));
}

Result<CollectiveRequest> Communicator::Impl::begin(const Call& call) {
  CollectiveRequest request;
  if (!calls.repeat(call, request)) {
    DUNLIN_ASSIGN(const Algorithm* const algorithm, choose(call));
    DUNLIN_ASSIGN(request, calls.post(call, *algorithm));
  }
  DUNLIN_TRY(calls.progress());
  return request;
}

Result<CollectiveRequest> Communicator::start(const Call& call) {
  auto request = impl_->begin(call);
  if (!request) return impl_->trace(std::move(request).status());
  return request;
}

void Communicator::progress() {
  impl_->members->fabric().progress();
  // The errors stay; test() and wait() return them.
  (void)impl_->calls.progress();
  (void)impl_->look_around();
}

Status Communicator::test(const CollectiveRequest& request) {
  impl_->members->fabric().progress();
  Status advanced = impl_->calls.progress();
  // A completed operation stays completed when a later one fails.
  if (impl_->calls.is_over(request)) return Status::ok();
  if (advanced.is_error()) return impl_->trace(std::move(advanced));
  DUNLIN_TRY(impl_->look_around());
  // Only waits check for dead members, and this caller may never wait.
  const PeerTable& peers = impl_->members->fabric().peers();
  if (const std::uint64_t version = peers.version(); version != impl_->seen_version) {
    impl_->seen_version = version;
    impl_->is_anybody_gone = peers.is_anybody_gone();
  }
  if (!impl_->is_anybody_gone) return Status::busy();
  Status status = wait(request, Duration::zero());
  return is_expiry(status) ? Status::busy() : status;
}

Status Communicator::wait(const CollectiveRequest& request, Duration timeout) {
  return wait(request, timeout, {});
}

Status Communicator::wait(const CollectiveRequest& request, Duration timeout,
                          const std::function<Status()>& pause) {
  CallQueue& calls = impl_->calls;
  // A completed operation stays completed when a member dies later.
  if (calls.is_over(request)) return Status::ok();
  Fabric& fabric = impl_->members->fabric();
  const auto step = [&]() -> Status {
    DUNLIN_TRY(calls.progress());
    if (pause && !calls.is_over(request)) DUNLIN_TRY(pause());
    return calls.is_over(request) ? Status::ok() : Status::busy();
  };
  const Waiting waiting(impl_->is_waiting);
  // Operations that take no longer than a cache line's transfer do not read the clock.
  const int quick_polls = fabric.shares_core() ? 0 : impl_->polls;
  for (int i = 0; i < quick_polls; ++i) {
    Status status = step();
    if (MemberWatch::may_follow_death(status)) break;  // watch.wait() sees it again and explains it
    if (!status.is_busy()) return status;
    fabric.progress();
    cpu_relax();
  }
  std::uint32_t polls = 0;
  const auto poll = [&]() -> Status {
    if (Status status = step(); !status.is_busy()) return status;
    const bool is_check_due = ++polls > kQuickPolls || polls % kPollsPerStallCheck == 0;
    if (is_check_due || calls.is_in_doubt()) DUNLIN_TRY(calls.check_stall(fabric.clock().now()));
    return Status::busy();
  };
  Status status = impl_->watch.wait(poll, awaiting(calls), timeout);
  if (status.code() == Code::kPeerDead) calls.give_up(status);
  return status;
}

std::vector<transport::Awaited> Communicator::awaited() const {
  return impl_->calls.awaited();
}

Rank Communicator::blocker() const {
  return impl_->calls.blocker();
}

Status Communicator::run(const Call& call) {
  Fabric& fabric = impl_->members->fabric();
  auto request = start(call);
  if (!request && (request.status().is_busy() || MemberWatch::may_follow_death(request.status()))) {
    // The queue is full until the oldest operations complete.
    const auto try_again = [&]() -> Status {
      if (!request.status().is_busy()) return request.status();
      DUNLIN_TRY(impl_->calls.check_stall(fabric.clock().now()));
      request = start(call);
      DUNLIN_TRY(impl_->calls.progress());
      return request ? Status::ok() : request.status();
    };
    DUNLIN_TRY(impl_->watch.wait(try_again, awaiting(impl_->calls), fabric.config().deadline));
  }
  if (!request) return std::move(request).status();
  return wait(*request, fabric.config().deadline);
}

Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  struct Choice {
    std::int32_t color = 0;
    std::int32_t key = 0;
  };
  struct Buffers {
    Choice own;
    std::vector<Choice> choices;
  };
  Outlasting<Buffers> buffers;
  const Choice own = buffers->own = {color, key};
  std::vector<Choice>& choices = buffers->choices;
  choices.resize(static_cast<std::size_t>(size()));
  const int number = impl_->splits++;
  if (impl_->members->is_on_gpu()) {
    // The choices are in host memory, so they travel through the bootstrap.
    DUNLIN_TRY(impl_->members->exchange(fmt::format("split {}", number),
                                        std::as_bytes(std::span(&own, 1)),
                                        std::as_writable_bytes(std::span(choices))));
  } else {
    Status status = all_gather(&buffers->own, choices.data(), sizeof own / sizeof(std::int32_t),
                               DataType::kInt32);
    buffers.settle(fabric(), status);
    DUNLIN_TRY(std::move(status));
  }
  std::vector<int> order;
  for (int rank = 0; rank < size(); ++rank) {
    if (choices[static_cast<std::size_t>(rank)].color == color) order.push_back(rank);
  }
  std::ranges::stable_sort(order, {},
                           [&](int rank) { return choices[static_cast<std::size_t>(rank)].key; });
  const CommunicatorOptions& parent = impl_->members->options();
  CommunicatorOptions options;
  options.scratch_bytes = parent.scratch_bytes;
  options.segment_bytes = parent.segment_bytes;
  options.gpu = parent.gpu;
  options.name = fmt::format("{}/{}.{}", parent.name, number, color);
  for (const int rank : order)
    options.members.push_back(parent.members[static_cast<std::size_t>(rank)]);
  return create(impl_->members->fabric(), std::move(options));
}

}  // namespace dunlin::collective
