// InProcessJob: clients and a ledger as over TCP, connected by direct calls.
#include <fmt/format.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/bootstrap/client.h"
#include "runtime/bootstrap/job_ledger.h"
#include "runtime/bootstrap/secret.h"

namespace dunlin {

// The clients own the state together. It refers to them by plain pointers, and each client removes
// its own pointer when it is destroyed.
struct InProcessJob::State {
  class Client;

  explicit State(bootstrap::JobLedger::Places places)
      : ledger(places, Duration::zero(),
               [this](Rank to, const bootstrap::Message& message) { deliver(to, message); }) {
    clients.resize(static_cast<std::size_t>(places.size), nullptr);
  }

  void deliver(Rank to, const bootstrap::Message& message);
  // Calls `work` on the ledger, and then passes to it what clients have sent. A client that sends
  // while the ledger delivers to it, on the same thread, only adds to `sent`.
  template <typename Work>
  void with_ledger(Work&& work);
  void pass_on();
  void add(Rank from, const bootstrap::Message& message) {
    const std::lock_guard lock(sent_mutex);
    sent.emplace_back(from, message);
  }

  const JobKey key = bootstrap::random_nonce();
  std::mutex mutex;  // guards all members below; locked before a client's mutex
  bootstrap::JobLedger ledger;
  std::vector<Client*> clients;
  SteadyClock clock;

  std::mutex sent_mutex;
  std::deque<std::pair<Rank, bootstrap::Message>> sent;  // under sent_mutex
  std::atomic<std::thread::id> passer{};                 // the thread that is in with_ledger()
};

template <typename Work>
void InProcessJob::State::with_ledger(Work&& work) {
  if (passer.load(std::memory_order_relaxed) == std::this_thread::get_id()) return;
  const std::lock_guard lock(mutex);
  passer.store(std::this_thread::get_id(), std::memory_order_relaxed);
  work();
  pass_on();
  passer.store(std::thread::id(), std::memory_order_relaxed);
}

void InProcessJob::State::pass_on() {
  for (;;) {
    std::unique_lock lock(sent_mutex);
    if (sent.empty()) {
      lock.unlock();
      if (!ledger.tell_departures()) return;  // nothing calls tick() later
      continue;
    }
    const auto [from, message] = std::move(sent.front());
    sent.pop_front();
    lock.unlock();
    // It cannot fail: a client sends valid messages only.
    (void)ledger.receive(from, message, clock.now());
  }
}

class InProcessJob::State::Client final : public bootstrap::BootstrapClient {
 public:
  // The job has let the rank in.
  Client(std::shared_ptr<State> state, JobInfo job)
      : BootstrapClient(std::move(job), state->key), state_(std::move(state)) {
    state_->with_ledger([&] { state_->clients[this->rank().index()] = this; });
    transmit({.type = bootstrap::MessageType::kJoin, .number = ~std::uint64_t{0}});
  }

  ~Client() override {
    leave();
    const std::lock_guard lock(state_->mutex);
    state_->clients[rank().index()] = nullptr;
  }

  void leave() noexcept override {
    if (std::exchange(has_left_, true)) return;
    announce_leave(Duration::zero());
    disconnect(Status(Code::kClosed, "this rank has left the job"));
  }

 private:
  friend State;
  friend InProcessJob;

  void transmit(const bootstrap::Message& message) override {
    state_->add(rank(), message);
    state_->with_ledger([] {});
  }
  void on_deadline() override {
    state_->with_ledger([&] { state_->ledger.tick(clock_.now()); });
  }

  std::shared_ptr<State> state_;
  SteadyClock clock_;
  bool has_left_ = false;
};

void InProcessJob::State::deliver(Rank to, const bootstrap::Message& message) {
  if (Client* const client = clients[to.index()]) client->deliver(message);
}

InProcessJob::InProcessJob(int size, std::string launcher)
    : InProcessJob(size, size, std::move(launcher)) {}

InProcessJob::InProcessJob(int size, int founders, std::string launcher)
    : state_(std::make_shared<State>(bootstrap::JobLedger::Places{size, founders})),
      job_{.size = size,
           .founders = founders,
           .local_size = founders,
           .job_id = "job-" + bootstrap::random_hex(6),
           .launcher = std::move(launcher)} {
  for (int rank = 0; rank < founders; ++rank) {
    job_.rank = Rank(rank);
    job_.local_rank = rank;
    // It cannot fail, as each rank joins once.
    state_->with_ledger([&] { (void)state_->ledger.admit(Rank(rank), state_->clock.now()); });
    unclaimed_.push_back(std::make_unique<State::Client>(state_, job_));
  }
}

Result<std::unique_ptr<Bootstrap>> InProcessJob::join() {
  JobInfo job = job_;
  Status admitted;
  state_->with_ledger([&] {
    const Result<Rank> found = state_->ledger.free_rank();
    admitted = found ? state_->ledger.admit(*found, state_->clock.now()) : found.status();
    if (admitted) job.rank = *found;
  });
  DUNLIN_TRY(admitted);
  return std::unique_ptr<Bootstrap>(std::make_unique<State::Client>(state_, job));
}

InProcessJob::~InProcessJob() = default;

std::unique_ptr<Bootstrap> InProcessJob::bootstrap(Rank rank) {
  return std::move(unclaimed_.at(rank.index()));
}

void InProcessJob::kill(Rank rank, std::string reason) {
  state_->with_ledger([&] {
    if (auto* const client = state_->clients[rank.index()])
      client->cut_off(Status(Code::kClosed, "this rank was killed: " + reason));
    state_->ledger.declare_dead(rank, reason);
  });
}

}  // namespace dunlin
