#include "bindings/session/partial.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

namespace dunlin::binding {

using collective::PartialAllReduce;
using collective::PartialCall;
using collective::PartialRequest;
using transport::Awaited;
using transport::Fabric;

namespace {

// Operations end by themselves at the deadline. A wait for an operation lasts this much longer.
constexpr Duration kBeyondDeadline = std::chrono::seconds(5);

// The calls of a name.
struct Calls {
  std::unique_ptr<PartialAllReduce> partial;
  std::uint64_t last_number = 0;
  std::deque<std::uint64_t> in_progress;  // numbers, ascending; the first one has its turn
  // Whether a call has failed: members may still have to be told, or to acknowledge it.
  bool has_failed = false;
};

}  // namespace

class PartialReduces::Body final : public Resident {
 public:
  using Resident::Resident;

  void progress() override {
    // After operations that have all succeeded, answers to peers can wait for the next call.
    for (auto& [name, calls] : calls_) {
      if (!calls.in_progress.empty() || calls.has_failed) calls.partial->progress();
    }
  }
  bool is_served() const override {
    return std::ranges::any_of(calls_, [](const auto& each) { return each.second.has_failed; });
  }
  bool outlasts_members() const override { return true; }
  void close() override {
    is_closed_ = true;
    calls_.clear();
  }
  bool is_closed() const { return is_closed_; }

  // The result stays valid until close().
  Result<Calls*> calls_of(const std::string& name) {
    const auto found = calls_.find(name);
    if (found != calls_.end()) return &found->second;
    Calls made;
    collective::PartialOptions options;
    options.name = "calls/" + name;  // a different name from GroupAverage's
    DUNLIN_ASSIGN(made.partial, PartialAllReduce::create(fabric(), options));
    return &calls_.emplace(name, std::move(made)).first->second;
  }

 private:
  std::map<std::string, Calls> calls_;
  bool is_closed_ = false;
};

class PartialReduces::Reduce final : public ResidentOperation {
 public:
  explicit Reduce(std::shared_ptr<Body> body) : ResidentOperation(body), body_(std::move(body)) {}

  Status begin(const std::string& name, PartialCall call) {
    if (body_->is_closed()) return closed();
    DUNLIN_ASSIGN(calls_, body_->calls_of(name));
    if (call.number == 0) call.number = calls_->last_number + 1;
    DUNLIN_ASSIGN(request_, calls_->partial->start(call));
    calls_->last_number = call.number;
    calls_->in_progress.push_back(request_.number);
    return Status::ok();
  }
  Status test() override {
    if (is_over()) return outcome();
    if (body_->is_closed()) return closed();
    Status status = calls_->partial->test(request_);
    if (status.is_busy()) {
      if (!is_late()) return status;
      status = calls_->partial->wait(request_, Duration::zero());  // gives it up
    }
    end(status);
    return status;
  }
  // Ends the operation with `why`, unless it is over.
  void give_up(const Status& why) {
    if (is_over()) return;
    if (!body_->is_closed()) (void)calls_->partial->wait(request_, Duration::zero());
    end(why);
  }

 protected:
  std::vector<Awaited> awaited() const override {
    return body_->is_closed() ? std::vector<Awaited>() : calls_->partial->awaited(request_);
  }

 private:
  void end(const Status& status) {
    if (!body_->is_closed()) {
      std::erase(calls_->in_progress, request_.number);
      calls_->has_failed = calls_->has_failed || status.is_error();
    }
    // Ends it also after a timeout, after which other operations would continue.
    finish(status);
  }
  bool is_late() {
    if (calls_->in_progress.front() != request_.number) return false;
    const TimePoint now = body_->fabric().clock().now();
    if (!turn_began_) turn_began_ = now;
    return now - *turn_began_ >= body_->fabric().config().deadline;
  }

  std::shared_ptr<Body> body_;
  Calls* calls_ = nullptr;
  PartialRequest request_;
  std::optional<TimePoint> turn_began_;
};

Result<std::shared_ptr<PartialReduces>> PartialReduces::create(Session& session) {
  std::shared_ptr<Body> made;
  DUNLIN_TRY(session.attach([&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
    made = std::make_shared<Body>(fabric);
    return std::shared_ptr<Resident>(made);
  }));
  return std::shared_ptr<PartialReduces>(new PartialReduces(session, std::move(made)));
}

Session::Make PartialReduces::maker(const std::string& name, const PartialCall& call) const {
  return [&, this](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto operation = std::make_shared<Reduce>(body_);
    DUNLIN_TRY(operation->begin(name, call));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  };
}

Result<std::shared_ptr<SessionOperation>> PartialReduces::start(const std::string& name,
                                                                const PartialCall& call) {
  return session_.start(maker(name, call));
}

Status PartialReduces::run(const std::string& name, const PartialCall& call,
                           const Session::Interrupt& interrupt,
                           std::shared_ptr<SessionOperation>* unfinished) {
  std::shared_ptr<SessionOperation> left;
  Status status = session_.run(maker(name, call), session_.config().deadline + kBeyondDeadline,
                               interrupt, &left);
  if (!left) return status;
  if (unfinished != nullptr) {
    *unfinished = std::move(left);
    return status;
  }
  // Does nothing after shutdown(), which has ended the operation.
  (void)session_.with_fabric([&](Fabric&) {
    static_cast<Reduce&>(*left).give_up(status);
    return Status::ok();
  });
  // It may have ended in the meantime with an outcome of its own.
  return left->is_over() ? left->outcome() : status;
}

}  // namespace dunlin::binding
