// InProcessJob: clients and a ledger as over TCP, connected by direct calls.
#include <fmt/format.h>

#include <mutex>

#include "runtime/bootstrap/client.h"
#include "runtime/bootstrap/job_ledger.h"
#include "runtime/bootstrap/secret.h"

namespace dunlin {

// The clients own the state together. It refers to them by plain pointers, and each client removes
// its own pointer when it is destroyed.
struct InProcessJob::State {
  class Client;

  explicit State(int size)
      : ledger(size, Duration::zero(),
               [this](Rank to, const bootstrap::Message& message) { deliver(to, message); }) {
    clients.resize(static_cast<std::size_t>(size), nullptr);
  }

  void deliver(Rank to, const bootstrap::Message& message);

  const JobKey key = bootstrap::random_nonce();
  std::mutex mutex;  // guards all members below; locked before a client's mutex
  bootstrap::JobLedger ledger;
  std::vector<Client*> clients;
};

class InProcessJob::State::Client final : public bootstrap::BootstrapClient {
 public:
  Client(std::shared_ptr<State> state, JobInfo job)
      : BootstrapClient(std::move(job), state->key), state_(std::move(state)) {
    const std::lock_guard lock(state_->mutex);
    state_->clients[rank().index()] = this;
    // It cannot fail: the constructor of the job admits each rank once.
    (void)state_->ledger.admit(rank(), clock_.now());
    transmit_locked({.type = bootstrap::MessageType::kJoin, .number = ~std::uint64_t{0}});
  }

  ~Client() override {
    leave();
    const std::lock_guard lock(state_->mutex);
    state_->clients[rank().index()] = nullptr;
  }

  void leave() noexcept override {
    if (std::exchange(has_left_, true)) return;
    announce_leave();
    disconnect(Status(Code::kClosed, "this rank has left the job"));
  }

 private:
  friend State;
  friend InProcessJob;

  void transmit(const bootstrap::Message& message) override {
    const std::lock_guard lock(state_->mutex);
    transmit_locked(message);
  }
  void transmit_locked(const bootstrap::Message& message) {
    // It cannot fail: a client sends valid messages only.
    (void)state_->ledger.receive(rank(), message, clock_.now());
  }
  void on_deadline() override {
    const std::lock_guard lock(state_->mutex);
    state_->ledger.tick(clock_.now());
  }

  std::shared_ptr<State> state_;
  SteadyClock clock_;
  bool has_left_ = false;
};

void InProcessJob::State::deliver(Rank to, const bootstrap::Message& message) {
  if (Client* const client = clients[to.index()]) client->deliver(message);
}

InProcessJob::InProcessJob(int size, std::string launcher) : state_(std::make_shared<State>(size)) {
  const std::string id = "job-" + bootstrap::random_hex(6);
  for (int rank = 0; rank < size; ++rank) {
    unclaimed_.push_back(std::make_unique<State::Client>(
        state_, JobInfo{Rank(rank), size, rank, size, id, launcher}));
  }
}

InProcessJob::~InProcessJob() = default;

std::unique_ptr<Bootstrap> InProcessJob::bootstrap(Rank rank) {
  return std::move(unclaimed_.at(rank.index()));
}

void InProcessJob::kill(Rank rank, std::string reason) {
  const std::lock_guard lock(state_->mutex);
  state_->ledger.declare_dead(rank, reason);
  if (auto* const client = state_->clients[rank.index()]) {
    client->disconnect(Status(Code::kClosed, "this rank was killed: " + reason));
  }
}

}  // namespace dunlin
