#include "bindings/session/pair_average.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bindings/session/agreement.h"

namespace dunlin::binding {

using training::Method;
using training::MethodKind;
using training::MethodOptions;
using transport::Awaited;
using transport::Fabric;

class PairAverage::Body final : public Resident {
 public:
  Body(Fabric& fabric, std::unique_ptr<Method> method)
      : Resident(fabric), method_(std::move(method)) {}

  void progress() override {
    // Errors are returned by the next operation.
    if (method_ && is_connected_) method_->progress();
  }
  bool is_served() const override {
    return method_ && is_connected_ && stage_ != Stage::kLeft && stage_ != Stage::kFailed;
  }
  void close() override { method_.reset(); }
  Method* get() const { return method_.get(); }  // null: closed
  Status connect() {
    DUNLIN_TRY(method_->connect());
    is_connected_ = true;
    return Status::ok();
  }

  Status start(Kind kind, const float* model) {
    if (stage_ == Stage::kFailed) return method_->test();
    if (stage_ == Stage::kLeaving || stage_ == Stage::kLeft)
      return {Code::kInvalidArgument, "this rank has left"};
    if (stage_ != Stage::kIdle)
      return {Code::kInvalidArgument, "starts an average while the last one is in progress"};
    if (kind == Kind::kLeave) {
      stage_ = Stage::kLeaving;
      return method_->leave();
    }
    std::copy_n(model, method_->parameters().size(), method_->parameters().data());
    stage_ = Stage::kBeginning;
    return method_->begin(iteration_++);
  }
  // kBusy, or, once, the outcome.
  Status test(float* model) {
    Status status = method_->test();
    if (status.is_ok() && stage_ == Stage::kBeginning) {
      stage_ = Stage::kFinishing;
      status = method_->finish(0, false);
      if (status.is_ok()) status = method_->test();
    }
    if (status.is_busy()) return status;
    const bool has_left = stage_ == Stage::kLeaving;
    stage_ = status.is_error() ? Stage::kFailed : has_left ? Stage::kLeft : Stage::kIdle;
    const bool has_model = iteration_ > 0;
    if (status.is_ok() && model != nullptr && has_model) {
      const std::span<const float> own = method_->parameters();
      std::copy_n(own.data(), own.size(), model);
    }
    return status;
  }

 private:
  enum class Stage : std::uint8_t { kIdle, kBeginning, kFinishing, kLeaving, kLeft, kFailed };

  std::unique_ptr<Method> method_;
  bool is_connected_ = false;
  Stage stage_ = Stage::kIdle;
  std::uint64_t iteration_ = 0;  // the next one
};

class PairAverage::Step final : public ResidentOperation {
 public:
  Step(std::shared_ptr<Body> body, float* model)
      : ResidentOperation(body), body_(std::move(body)), model_(model) {}

  Status begin(Kind kind) {
    return body_->get() == nullptr ? closed() : body_->start(kind, model_);
  }
  Status test() override {
    if (is_over()) return outcome();
    if (body_->get() == nullptr) return closed();
    Status status = body_->test(model_);
    // Ends it also after a timeout, after which other operations would continue.
    if (!status.is_busy()) finish(status);
    return status;
  }

 protected:
  std::vector<Awaited> awaited() const override {
    return body_->get() == nullptr ? std::vector<Awaited>() : body_->get()->awaited();
  }

 private:
  std::shared_ptr<Body> body_;
  float* model_;
};

Result<std::shared_ptr<PairAverage>> PairAverage::create(Session& session, Options options,
                                                         const Session::Interrupt& interrupt,
                                                         Status mistake) {
  std::shared_ptr<PairAverage> made(new PairAverage(session, std::move(options)));
  DUNLIN_TRY(made->build(interrupt, std::move(mistake)));
  return made;
}

Status PairAverage::build(const Session::Interrupt& interrupt, Status mistake) {
  const std::uint64_t number = session_.next_number();
  const std::string what = fmt::format("making the pair average '{}'", options_.name);
  MethodOptions wanted;
  wanted.name = fmt::format("pairs/{}/{}", options_.name, number);
  wanted.kind = MethodKind::kAdPsgd;
  wanted.count = options_.count;
  wanted.has_own_step = true;
  wanted.graph = options_.graph;
  wanted.seed = options_.seed;
  Status status = std::move(mistake);
  if (status.is_ok()) {
    status = session_.attach([&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
      DUNLIN_ASSIGN(auto method, training::prepare_method(fabric, wanted));
      body_ = std::make_shared<Body>(fabric, std::move(method));
      return std::shared_ptr<Resident>(body_);
    });
  }
  // After this agreement all ranks are prepared, so that connect() doesn't wait.
  status = agree(session_, std::move(status), what,
                 fmt::format("{} {} {} {} {}", number, options_.name, options_.count,
                             options_.graph, options_.seed),
                 interrupt);
  if (status.is_ok()) {
    status = session_.with_fabric(
        [&](Fabric&) { return body_->get() == nullptr ? closed() : body_->connect(); });
    status = agree(session_, std::move(status), what, {}, interrupt);
  }
  if (!status.is_ok() && body_) session_.detach(*body_);
  return status;
}

Session::Make PairAverage::maker(Kind kind, float* model) const {
  return [=, this](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto operation = std::make_shared<Step>(body_, model);
    Status status = operation->begin(kind);
    if (!status.is_ok()) return std::move(status).with_context(fmt::format("'{}'", options_.name));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  };
}

Result<std::shared_ptr<SessionOperation>> PairAverage::start(float* model) {
  return session_.start(maker(Kind::kAverage, model));
}

Status PairAverage::run(float* model, const Session::Interrupt& interrupt,
                        std::shared_ptr<SessionOperation>* unfinished) {
  return session_.run(maker(Kind::kAverage, model), session_.config().deadline, interrupt,
                      unfinished);
}

Status PairAverage::leave(float* model, const Session::Interrupt& interrupt,
                          std::shared_ptr<SessionOperation>* unfinished) {
  return session_.run(maker(Kind::kLeave, model), session_.config().deadline, interrupt,
                      unfinished);
}

Result<training::MethodReport> PairAverage::report() {
  training::MethodReport report;
  DUNLIN_TRY(session_.with_fabric([&](Fabric&) -> Status {
    if (body_->get() == nullptr) return closed();
    report = body_->get()->report();
    return Status::ok();
  }));
  return report;
}

}  // namespace dunlin::binding
