#include "bindings/session/machines.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "bindings/session/agreement.h"

namespace dunlin::binding {

using collective::HierarchicalExchange;
using collective::HierarchicalRequest;
using collective::NeighborCall;
using collective::NeighborExchange;
using transport::Awaited;
using transport::Fabric;

class Machines::Averages final : public Resident {
 public:
  Averages(Fabric& fabric, std::unique_ptr<NeighborExchange> exchange,
           std::unique_ptr<HierarchicalExchange> averages)
      : Resident(fabric), exchange_(std::move(exchange)), averages_(std::move(averages)) {}

  void progress() override {
    if (!averages_) return;
    averages_->progress();
    if (exchange_->needs_progress()) exchange_->progress();
  }
  bool is_served() const override { return averages_ && exchange_->needs_progress(); }
  void close() override {
    averages_.reset();
    exchange_.reset();
  }
  HierarchicalExchange* get() const { return averages_.get(); }  // null: closed

 private:
  std::unique_ptr<NeighborExchange> exchange_;
  std::unique_ptr<HierarchicalExchange> averages_;
};

class Machines::Average final : public ResidentOperation {
 public:
  explicit Average(std::shared_ptr<Averages> averages)
      : ResidentOperation(averages), averages_(std::move(averages)) {}

  Status begin(const NeighborCall& call) {
    if (averages_->get() == nullptr) return closed();
    DUNLIN_ASSIGN(request_, averages_->get()->start(call));
    return Status::ok();
  }
  Status test() override {
    if (is_over()) return outcome();
    return averages_->get() == nullptr ? closed() : averages_->get()->test(request_);
  }

 private:
  std::vector<Awaited> awaited() const override {
    if (averages_->get() == nullptr) return {};
    return averages_->get()->awaited(request_);
  }

  std::shared_ptr<Averages> averages_;
  HierarchicalRequest request_;
};

Result<std::shared_ptr<Machines>> Machines::create(Session& session,
                                                   std::vector<std::vector<Rank>> machines,
                                                   const Session::Interrupt& interrupt) {
  DUNLIN_TRY(session.check_fixed("averages of machines"));
  std::string text;
  for (const std::vector<Rank>& ranks : machines) {
    for (const Rank rank : ranks) text += fmt::format("{} ", rank.value());
    text += '/';
  }
  Status own = HierarchicalExchange::check(machines, session.job().size);
  // All ranks have to be here before making the exchange blocks any of them.
  DUNLIN_TRY(agree(session, std::move(own), "making machines", text, interrupt));
  static std::atomic<int> made{0};
  const std::string name = fmt::format("machines {}", made++);
  std::shared_ptr<Averages> averages;
  DUNLIN_TRY(session.attach([&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
    DUNLIN_ASSIGN(auto exchange, NeighborExchange::create(fabric, {.name = name}));
    DUNLIN_ASSIGN(auto created,
                  HierarchicalExchange::create(fabric, *exchange, {name, std::move(machines)}));
    averages = std::make_shared<Averages>(fabric, std::move(exchange), std::move(created));
    return std::shared_ptr<Resident>(averages);
  }));
  return std::shared_ptr<Machines>(new Machines(session, std::move(averages)));
}

Result<std::shared_ptr<SessionOperation>> Machines::start(const NeighborCall& call) {
  return session_.start([&](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto operation = std::make_shared<Average>(averages_);
    DUNLIN_TRY(operation->begin(call));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  });
}

}  // namespace dunlin::binding
