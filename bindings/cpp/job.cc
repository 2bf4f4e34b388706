#include <dunlin/job.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "bindings/cpp/internal.h"
#include "runtime/log.h"

namespace dunlin {
namespace {

constexpr const char* kBarrier = "dunlin::Job::barrier";

Environment environment_of(const JobOptions& options) {
  Environment environment = Environment::of_process();
  for (const auto& [name, value] : options.settings) environment.set(name, value);
  return environment;
}

JobMembers members_of(const Membership& membership) {
  return {membership.epoch, membership.members};
}

// The rest of a state whose configuration and bootstrap are there.
Status complete(JobState& state) {
  Bootstrap& bootstrap = *state.bootstrap;
  DUNLIN_ASSIGN(state.trace, Trace::open(state.config.trace_file, bootstrap.rank(),
                                         bootstrap.size(), state.clock));
  DUNLIN_ASSIGN(state.recorder, flight::Recorder::open(state.config, bootstrap, state.clock));
  DUNLIN_ASSIGN(state.fabric,
                transport::Fabric::create(bootstrap, state.config, state.clock, state.trace.get()));
  state.fabric->record_in(state.recorder.get());
  return Status::ok();
}

}  // namespace

Job::Job(std::shared_ptr<JobState> state) : state_(std::move(state)) {}
Job::Job(Job&&) noexcept = default;

Job& Job::operator=(Job&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Job::~Job() {
  if (!state_) return;
  // A rank that an exception ends has failed: its record stays.
  if (state_->recorder && std::uncaught_exceptions() == 0)
    state_->recorder->leave(state_->bootstrap->peers());
  state_->bootstrap->leave();
}

Result<Job> Job::join(const JobOptions& options) {
  const Environment environment = environment_of(options);
  auto state = std::make_shared<JobState>();
  DUNLIN_ASSIGN(state->config, Config::parse(environment));
  configure_log(state->config.log_level, Rank());
  DUNLIN_ASSIGN(state->bootstrap, Bootstrap::join(state->config, environment));
  configure_log(state->config.log_level, state->bootstrap->rank());
  DUNLIN_TRY(complete(*state));
  return Job(std::move(state));
}

Result<std::vector<Job>> Job::in_process(int size, const JobOptions& options) {
  if (size < 1) return Status(Code::kInvalidArgument, "a job of less than one rank");
  DUNLIN_ASSIGN(const Config config, Config::parse(environment_of(options)));
  InProcessJob job(size);
  std::vector<Job> jobs;
  for (int rank = 0; rank < size; ++rank) {
    auto state = std::make_shared<JobState>();
    state->config = config;
    state->bootstrap = job.bootstrap(Rank(rank));
    DUNLIN_TRY(complete(*state));
    jobs.push_back(Job(std::move(state)));
  }
  return jobs;
}

Rank Job::rank() const {
  return state_->bootstrap->rank();
}

int Job::size() const {
  return state_->bootstrap->size();
}

int Job::local_rank() const {
  return state_->bootstrap->job().local_rank;
}

int Job::local_size() const {
  return state_->bootstrap->job().local_size;
}

Duration Job::deadline() const {
  return state_->config.deadline;
}

TimePoint Job::now() const {
  return state_->clock.now();
}

Status Job::barrier() {
  return barrier(deadline());
}

Status Job::barrier(Duration timeout) {
  return state_->bootstrap->barrier(kBarrier, timeout);
}

Status Job::leave() {
  Status outcome = barrier();
  state_->bootstrap->leave();
  if (outcome && state_->trace) outcome = state_->trace->write();
  return outcome;
}

Status Job::publish(std::string_view key, std::span<const std::byte> value) {
  return state_->bootstrap->publish(key, value);
}

Result<Bytes> Job::lookup(std::string_view key, Duration timeout) {
  return state_->bootstrap->lookup(key, timeout);
}

Result<Bytes> Job::lookup_from(Rank publisher, std::string_view key, Duration timeout) {
  return state_->bootstrap->lookup_from(publisher, key, timeout);
}

std::size_t Job::progress() {
  return state_->fabric->progress();
}

Status Job::wait_for(Status (*ready)(void*), void* context, Rank peer, const char* what,
                     Duration timeout) {
  const auto describe = [&] {
    std::vector<transport::Awaited> awaited;
    if (peer != Rank()) awaited.push_back({peer, what});
    return awaited;
  };
  return state_->fabric->wait([&] { return ready(context); },
                              transport::Awaiting{describe, [&] { return peer; }}, timeout);
}

Status Job::check(Rank rank) const {
  if (rank.value() < 0 || rank.value() >= size())
    return {Code::kOutOfRange, "no such rank in this job"};
  return state_->bootstrap->peers().check(rank);
}

JobMembers Job::members() const {
  return members_of(state_->bootstrap->membership());
}

Result<JobMembers> Job::reform(Duration timeout) {
  DUNLIN_ASSIGN(const Membership membership, state_->bootstrap->reform(timeout));
  return members_of(membership);
}

bool Job::is_newcomer() const {
  const Bootstrap& bootstrap = *state_->bootstrap;
  const std::vector<Rank> members = bootstrap.membership().members;
  return rank().value() >= bootstrap.job().founders && !std::ranges::binary_search(members, rank());
}

Result<bool> Job::changes_before(std::uint64_t step) {
  return state_->bootstrap->changes_before(step, deadline());
}

Status Job::retire() {
  return state_->bootstrap->retire();
}

std::string Job::explain(Rank peer) {
  return state_->fabric->explain(peer);
}

const PeerCounters& Job::counters(Rank peer) const {
  return state_->fabric->counters().peer(peer);
}

Trace* Job::trace() {
  return state_->trace.get();
}

void Job::begin_step(std::uint64_t number) {
  state_->fabric->begin_step(number);
}

}  // namespace dunlin
