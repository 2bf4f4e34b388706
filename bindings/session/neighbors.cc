#include "bindings/session/neighbors.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

namespace dunlin::binding {

using collective::Missed;
using collective::NeighborCall;
using collective::NeighborExchange;
using collective::NeighborRequest;
using transport::Awaited;
using transport::Fabric;

class Neighbors::Exchange final : public Resident {
 public:
  Exchange(Fabric& fabric, std::unique_ptr<NeighborExchange> exchange)
      : Resident(fabric), exchange_(std::move(exchange)) {}

  void progress() override {
    if (!is_served() && seekers_.empty()) return;
    // An AnyGather that takes a message begins a call, which needs progress.
    do {
      exchange_->progress();
    } while (serve());
  }
  bool is_served() const override { return exchange_ && exchange_->needs_progress(); }
  bool outlasts_members() const override { return true; }
  void close() override {
    exchange_.reset();
    seekers_.clear();
  }
  NeighborExchange* get() const { return exchange_.get(); }  // null: closed

  // AnyGathers poll for messages in the order of these numbers.
  std::uint64_t next_turn() { return ++last_turn_; }
  void add(std::uint64_t turn, AnyGather& seeker) { seekers_.emplace(turn, &seeker); }
  void remove(std::uint64_t turn) { seekers_.erase(turn); }
  // Polls for messages; true if an AnyGather has taken one.
  bool serve();
  // The source of the last message that was taken under a name; Rank(): none yet.
  Rank& last_source(const std::string& name) { return last_sources_[name]; }

 private:
  std::unique_ptr<NeighborExchange> exchange_;
  std::map<std::uint64_t, AnyGather*> seekers_;  // by turn
  std::uint64_t last_turn_ = 0;
  std::unordered_map<std::string, Rank> last_sources_;
};

class Neighbors::Average : public ResidentOperation {
 public:
  explicit Average(std::shared_ptr<Exchange> exchange)
      : ResidentOperation(exchange), exchange_(std::move(exchange)) {}

  // `name`: of the call, as the present members know it. After others have died, messages of theirs
  // for earlier calls may still come.
  Status begin(const NeighborCall& call, const std::string& name) {
    if (exchange_->get() == nullptr) return closed();
    NeighborCall named = call;
    named.name = name;
    DUNLIN_ASSIGN(request_, start(*exchange_->get(), named));
    is_in_progress_ = true;
    return Status::ok();
  }
  Status test() override {
    if (is_over()) return outcome();
    if (exchange_->get() == nullptr) return closed();
    Status status = exchange_->get()->outcome(request_);
    is_in_progress_ = status.is_busy();
    return status;
  }

 protected:
  virtual Result<NeighborRequest> start(NeighborExchange& exchange, const NeighborCall& call) {
    return exchange.start(call);
  }
  virtual Missed missed() const { return Missed::kDropped; }
  void detach() override {
    if (is_in_progress_ && exchange_->get() != nullptr)
      exchange_->get()->give_up(request_, missed());
  }
  bool handles_deaths() const override { return true; }
  std::vector<Awaited> awaited() const override {
    if (exchange_->get() == nullptr) return {};
    return exchange_->get()->awaited(request_);
  }

 private:
  std::shared_ptr<Exchange> exchange_;
  NeighborRequest request_;
  bool is_in_progress_ = false;
};

class Neighbors::Gather final : public Average, public NeighborGather {
 public:
  Gather(std::shared_ptr<Exchange> exchange, Missed missed)
      : Average(std::move(exchange)), missed_(missed) {}
  std::vector<Bytes>& parts() override { return parts_; }
  std::vector<Rank> sources() const override { return sources_; }
  void withdraw(const Status& why) override {
    if (is_sending_) return;
    settle(test());
    if (!is_over()) finish(why);
  }

 private:
  Result<NeighborRequest> start(NeighborExchange& exchange, const NeighborCall& call) override {
    for (const auto& source : call.sources) sources_.push_back(source.rank);
    is_sending_ = !call.destinations.empty();
    return exchange.start_gather(call, parts_);
  }
  Missed missed() const override { return missed_; }

  const Missed missed_;
  bool is_sending_ = false;
  std::vector<Bytes> parts_;
  std::vector<Rank> sources_;
};

// Polls for a message from any of the sources, and begins a gather from the source of the first. If
// that source dies before all its data have come, it polls for the other sources again.
class Neighbors::AnyGather final : public ResidentOperation, public NeighborGather {
 public:
  explicit AnyGather(std::shared_ptr<Exchange> exchange)
      : ResidentOperation(exchange), exchange_(std::move(exchange)) {}

  Status begin(const NeighborCall& call, std::string name) {
    if (exchange_->get() == nullptr) return closed();
    name_ = std::move(name);
    call_ = call;
    call_.name = name_;
    for (const auto& source : call.sources) ranks_.push_back(source.rank);
    turn_ = exchange_->next_turn();
    DUNLIN_TRY(begin_seeking());
    (void)exchange_->serve();
    return Status::ok();
  }
  std::vector<Bytes>& parts() override { return parts_; }
  std::vector<Rank> sources() const override { return {source_}; }

  Status test() override {
    if (is_over()) return outcome();
    for (;;) {
      if (exchange_->get() == nullptr) return closed();
      if (!failure_.is_ok()) return failure_;
      if (is_seeking_) return Status::busy();
      Status status = exchange_->get()->outcome(request_);
      is_gathering_ = status.is_busy();
      const bool is_dead = status.is_error() && !exchange_->fabric().peers().is_present(source_);
      if (!is_dead) return status;
      failure_ = begin_seeking();
      exchange_->progress();
    }
  }
  void withdraw(const Status& why) override {
    settle(test());
    if (!is_over()) finish(why);
  }

  // True if it has taken a message.
  bool poll() {
    const auto& peers = exchange_->fabric().peers();
    const auto last = std::ranges::find(ranks_, exchange_->last_source(name_));
    const auto first = last == ranks_.end() ? 0 : last - ranks_.begin() + 1;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Rank source = ranks_[(static_cast<std::size_t>(first) + i) % ranks_.size()];
      if (exchange_->get()->has_arrived(name_, source)) return take(source);
    }
    if (std::ranges::any_of(ranks_, [&](Rank rank) { return peers.is_present(rank); }))
      return false;
    end_seeking();
    failure_ =
        peers.check(ranks_.back()).with_context("a message from any rank: all sources are dead");
    return false;
  }

 protected:
  // The living sources: it waits as long as there is one.
  std::vector<Awaited> awaited() const override {
    if (exchange_->get() == nullptr) return {};
    if (!is_seeking_) return exchange_->get()->awaited(request_);
    std::vector<Awaited> result;
    for (const Rank rank : ranks_) {
      if (exchange_->fabric().peers().is_present(rank))
        result.push_back({rank, "a message '" + name_ + "' from any rank"});
    }
    return result;
  }
  bool handles_deaths() const override { return true; }
  void detach() override {
    if (exchange_->get() == nullptr) return;
    end_seeking();
    if (is_gathering_) exchange_->get()->give_up(request_, Missed::kDropped);
  }

 private:
  Status begin_seeking() {
    DUNLIN_TRY(exchange_->get()->begin_seeking(name_, ranks_));
    exchange_->add(turn_, *this);
    is_seeking_ = true;
    return Status::ok();
  }
  void end_seeking() {
    if (!std::exchange(is_seeking_, false)) return;
    exchange_->get()->end_seeking(name_, ranks_);
    exchange_->remove(turn_);
  }
  bool take(Rank source) {
    end_seeking();
    source_ = source;
    exchange_->last_source(name_) = source;
    call_.sources = {{source}};
    auto request = exchange_->get()->start_gather(call_, parts_);
    is_gathering_ = request.is_ok();
    if (!request) {
      failure_ = request.status();
      return false;
    }
    request_ = *request;
    return true;
  }

  std::shared_ptr<Exchange> exchange_;
  std::string name_;
  NeighborCall call_;
  std::vector<Rank> ranks_;  // of all sources
  std::uint64_t turn_ = 0;
  bool is_seeking_ = false;
  bool is_gathering_ = false;
  Status failure_;
  Rank source_;
  NeighborRequest request_;
  std::vector<Bytes> parts_;
};

bool Neighbors::Exchange::serve() {
  bool has_taken = false;
  for (auto next = seekers_.begin(); next != seekers_.end();) {
    AnyGather& seeker = *(next++)->second;  // it may remove itself
    has_taken = seeker.poll() || has_taken;
  }
  return has_taken;
}

Result<std::shared_ptr<Neighbors>> Neighbors::create(Session& session, std::string name,
                                                     std::optional<int> gpu) {
  std::shared_ptr<Exchange> made;
  DUNLIN_TRY(session.attach([&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
    DUNLIN_ASSIGN(auto exchange, NeighborExchange::create(fabric, {.name = name, .gpu = gpu}));
    made = std::make_shared<Exchange>(fabric, std::move(exchange));
    return std::shared_ptr<Resident>(made);
  }));
  return std::shared_ptr<Neighbors>(new Neighbors(session, std::move(made)));
}

Result<std::shared_ptr<SessionOperation>> Neighbors::start(const NeighborCall& call) {
  return session_.start([&](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto operation = std::make_shared<Average>(exchange_);
    DUNLIN_TRY(operation->begin(call, session_.name_of_epoch(call.name)));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  });
}

Status Neighbors::average(const NeighborCall& call, const Session::Interrupt& interrupt,
                          std::shared_ptr<SessionOperation>* unfinished) {
  const auto make = [&](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto operation = std::make_shared<Average>(exchange_);
    DUNLIN_TRY(operation->begin(call, session_.name_of_epoch(call.name)));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  };
  return session_.run(make, session_.config().deadline, interrupt, unfinished);
}

Result<Neighbors::Gathering> Neighbors::start_gather(const NeighborCall& call,
                                                     std::function<void()> when_over,
                                                     Missed missed) {
  auto gather = std::make_shared<Gather>(exchange_, missed);
  gather->when_over(std::move(when_over));
  DUNLIN_ASSIGN(auto operation,
                session_.start([&](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
                  DUNLIN_TRY(gather->begin(call, session_.name_of_epoch(call.name)));
                  return std::shared_ptr<SessionOperation>(gather);
                }));
  return Gathering{std::move(operation), std::move(gather)};
}

Result<Neighbors::Gathering> Neighbors::start_gather_any(const NeighborCall& call,
                                                         std::function<void()> when_over) {
  auto gather = std::make_shared<AnyGather>(exchange_);
  gather->when_over(std::move(when_over));
  DUNLIN_ASSIGN(auto operation,
                session_.start([&](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
                  DUNLIN_TRY(gather->begin(call, session_.name_of_epoch(call.name)));
                  return std::shared_ptr<SessionOperation>(gather);
                }));
  return Gathering{std::move(operation), std::move(gather)};
}

}  // namespace dunlin::binding
