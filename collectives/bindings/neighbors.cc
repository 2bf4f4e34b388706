#include "collectives/bindings/neighbors.h"

#include <utility>

namespace dunlin::binding {

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
    // Whoever has nothing under way has nothing to answer that can't wait for the next call.
    if (exchange_ && (exchange_->under_way() > 0 || seekers_ > 0)) exchange_->progress();
  }
  Status begin_seeking(std::span<const Rank> ranks) {
    DUNLIN_TRY(exchange_->begin_seeking(ranks));
    ++seekers_;
    return Status::ok();
  }
  void end_seeking() {
    if (!exchange_) return;
    exchange_->end_seeking();
    --seekers_;
  }
  bool is_served() const override { return false; }
  void close() override { exchange_.reset(); }
  NeighborExchange* get() const { return exchange_.get(); }  // null: closed

 private:
  std::unique_ptr<NeighborExchange> exchange_;
  int seekers_ = 0;
};

class Neighbors::Average : public ResidentOperation {
 public:
  explicit Average(std::shared_ptr<Exchange> exchange)
      : ResidentOperation(exchange), exchange_(std::move(exchange)) {}

  Status begin(const NeighborCall& call) {
    if (exchange_->get() == nullptr) return closed();
    DUNLIN_ASSIGN(request_, start(*exchange_->get(), call));
    return Status::ok();
  }
  Status test() override {
    if (is_over()) return outcome();
    return exchange_->get() == nullptr ? closed() : exchange_->get()->outcome(request_);
  }

 protected:
  virtual Result<NeighborRequest> start(NeighborExchange& exchange, const NeighborCall& call) {
    return exchange.start(call);
  }
  std::vector<Awaited> awaited() const override {
    if (exchange_->get() == nullptr) return {};
    return exchange_->get()->awaited(request_);
  }

 private:
  std::shared_ptr<Exchange> exchange_;
  NeighborRequest request_;
};

class Neighbors::Gather final : public Average, public NeighborGather {
 public:
  using Average::Average;
  std::vector<Bytes>& parts() override { return parts_; }
  std::vector<Rank> sources() const override { return sources_; }

 private:
  Result<NeighborRequest> start(NeighborExchange& exchange, const NeighborCall& call) override {
    for (const auto& source : call.sources) sources_.push_back(source.rank);
    return exchange.start_gather(call, parts_);
  }

  std::vector<Bytes> parts_;
  std::vector<Rank> sources_;
};

// Looks for what has come; the gather itself begins where something has.
class Neighbors::AnyGather final : public ResidentOperation, public NeighborGather {
 public:
  explicit AnyGather(std::shared_ptr<Exchange> exchange)
      : ResidentOperation(exchange), exchange_(std::move(exchange)) {}

  Status begin(const NeighborCall& call) {
    if (exchange_->get() == nullptr) return closed();
    name_ = call.name;
    call_ = call;
    call_.name = name_;
    std::vector<Rank> ranks;
    for (const auto& source : call.sources) ranks.push_back(source.rank);
    DUNLIN_TRY(exchange_->begin_seeking(ranks));
    is_seeking_ = true;
    return Status::ok();
  }
  std::vector<Bytes>& parts() override { return parts_; }
  std::vector<Rank> sources() const override { return {source_}; }

  Status test() override {
    if (is_over()) return outcome();
    if (exchange_->get() == nullptr) return closed();
    if (!is_seeking_) return exchange_->get()->outcome(request_);
    Status status = seek();
    if (status.is_error()) end_seeking();
    return status.is_ok() ? exchange_->get()->outcome(request_) : status;
  }

 protected:
  // Of those who could send, any may go as long as another one is left.
  std::vector<Awaited> awaited() const override {
    if (exchange_->get() == nullptr) return {};
    if (!is_seeking_) return exchange_->get()->awaited(request_);
    std::vector<Awaited> result;
    for (const auto& source : call_.sources) {
      if (exchange_->fabric().peers().is_present(source.rank))
        result.push_back({source.rank, "a message '" + name_ + "' from any rank"});
    }
    return result;
  }

 private:
  Status seek() {
    Status loss;
    bool is_anybody_left = false;
    for (const auto& source : call_.sources) {
      if (exchange_->get()->has_come(name_, source.rank)) return take(source);
      if (Status presence = exchange_->fabric().peers().check(source.rank); presence.is_ok()) {
        is_anybody_left = true;
      } else {
        loss = std::move(presence);
      }
    }
    if (is_anybody_left) return Status::busy();
    return std::move(loss).with_context("a message from any rank, of whom none is left");
  }
  Status take(const collective::WeightedRank& source) {
    end_seeking();
    source_ = source.rank;
    call_.sources = {source};
    DUNLIN_ASSIGN(request_, exchange_->get()->start_gather(call_, parts_));
    return Status::ok();
  }
  void end_seeking() {
    if (std::exchange(is_seeking_, false)) exchange_->end_seeking();
  }

  std::shared_ptr<Exchange> exchange_;
  std::string name_;
  NeighborCall call_;
  bool is_seeking_ = false;
  Rank source_;
  NeighborRequest request_;
  std::vector<Bytes> parts_;
};

Result<std::shared_ptr<Neighbors>> Neighbors::create(Runtime& runtime, std::string name) {
  std::shared_ptr<Exchange> made;
  DUNLIN_TRY(runtime.attach([&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
    DUNLIN_ASSIGN(auto exchange, NeighborExchange::create(fabric, {.name = name}));
    made = std::make_shared<Exchange>(fabric, std::move(exchange));
    return std::shared_ptr<Resident>(made);
  }));
  return std::shared_ptr<Neighbors>(new Neighbors(runtime, std::move(made)));
}

Result<std::shared_ptr<Operation>> Neighbors::start(const NeighborCall& call) {
  return runtime_.start([&](Fabric&) -> Result<std::shared_ptr<Operation>> {
    auto operation = std::make_shared<Average>(exchange_);
    DUNLIN_TRY(operation->begin(call));
    return std::shared_ptr<Operation>(std::move(operation));
  });
}

Status Neighbors::average(const NeighborCall& call, const Runtime::Interrupt& interrupt,
                          std::shared_ptr<Operation>* unfinished) {
  const auto make = [&](Fabric&) -> Result<std::shared_ptr<Operation>> {
    auto operation = std::make_shared<Average>(exchange_);
    DUNLIN_TRY(operation->begin(call));
    return std::shared_ptr<Operation>(std::move(operation));
  };
  return runtime_.run(make, runtime_.config().deadline, interrupt, unfinished);
}

Result<Neighbors::Gathering> Neighbors::start_gather(const NeighborCall& call,
                                                     std::function<void()> when_over) {
  auto gather = std::make_shared<Gather>(exchange_);
  gather->when_over(std::move(when_over));
  DUNLIN_ASSIGN(auto operation, runtime_.start([&](Fabric&) -> Result<std::shared_ptr<Operation>> {
    DUNLIN_TRY(gather->begin(call));
    return std::shared_ptr<Operation>(gather);
  }));
  return Gathering{std::move(operation), std::move(gather)};
}

Result<Neighbors::Gathering> Neighbors::start_gather_any(const NeighborCall& call,
                                                         std::function<void()> when_over) {
  auto gather = std::make_shared<AnyGather>(exchange_);
  gather->when_over(std::move(when_over));
  DUNLIN_ASSIGN(auto operation, runtime_.start([&](Fabric&) -> Result<std::shared_ptr<Operation>> {
    DUNLIN_TRY(gather->begin(call));
    return std::shared_ptr<Operation>(gather);
  }));
  return Gathering{std::move(operation), std::move(gather)};
}

}  // namespace dunlin::binding
