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
    if (exchange_ && exchange_->under_way() > 0) exchange_->progress();
  }
  bool is_served() const override { return false; }
  void close() override { exchange_.reset(); }
  NeighborExchange* get() const { return exchange_.get(); }  // null: closed

 private:
  std::unique_ptr<NeighborExchange> exchange_;
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

 private:
  Result<NeighborRequest> start(NeighborExchange& exchange, const NeighborCall& call) override {
    return exchange.start_gather(call, parts_);
  }

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

}  // namespace dunlin::binding
