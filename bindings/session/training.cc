#include "bindings/session/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bindings/session/agreement.h"

namespace dunlin::binding {

using training::Method;
using training::MethodOptions;
using transport::Awaited;
using transport::Fabric;

namespace {

// The options that have to be the same on all ranks, as a text: those of the methods that are
// offered here.
std::string text_of(const MethodOptions& options, std::uint64_t number) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", number, options.name, to_string(options.kind),
                     options.count, options.has_own_step, options.sgd.momentum,
                     options.sgd.weight_decay, options.servers, options.graph, options.seed);
}

}  // namespace

class Training::Body final : public Resident {
 public:
  Body(Fabric& fabric, std::unique_ptr<Method> method)
      : Resident(fabric),
        method_(std::move(method)),
        stage_(method_->is_server() ? Stage::kServing : Stage::kIdle) {}

  void progress() override {
    // Errors are returned by the next operation.
    if (method_ && is_connected_) method_->progress();
  }
  bool is_served() const override {
    return method_ && is_connected_ && stage_ != Stage::kOver && stage_ != Stage::kFailed;
  }
  void close() override { method_.reset(); }
  Method* get() const { return method_.get(); }  // null: closed
  Status connect() {
    DUNLIN_TRY(method_->connect());
    is_connected_ = true;
    return Status::ok();
  }

  Status start(Kind kind, const Step& step, bool has_own_step) {
    if (stage_ == Stage::kFailed) return failure_;
    if ((kind == Kind::kServe) != method_->is_server())
      return {Code::kInvalidArgument,
              kind == Kind::kServe ? "this rank is no server" : "this rank is a server"};
    if (kind == Kind::kServe) return Status::ok();
    if (stage_ == Stage::kLeaving || stage_ == Stage::kOver)
      return {Code::kInvalidArgument, "this rank has left"};
    if (stage_ != Stage::kIdle)
      return {Code::kInvalidArgument, "starts a step while the last one is in progress"};
    if (kind == Kind::kLeave) {
      stage_ = Stage::kLeaving;
      return noted(method_->leave());
    }
    if (has_own_step || iteration_ == 0)
      std::copy_n(step.model, method_->parameters().size(), method_->parameters().data());
    stage_ = Stage::kBeginning;
    return noted(method_->begin(iteration_++));
  }
  // The operation in progress has ended otherwise than by test().
  void give_up() {
    Status status = method_->test();
    if (!status.is_error()) status = {Code::kClosed, "the last step was given up"};
    (void)noted(std::move(status));
  }
  // kBusy, or, once, the outcome.
  Status test(const Step& step) {
    Status status = method_->test();
    if (status.is_ok() && stage_ == Stage::kBeginning) {
      if (step.gradient != nullptr)
        std::copy_n(step.gradient, method_->gradient().size(), method_->gradient().data());
      stage_ = Stage::kFinishing;
      status = method_->finish(step.learning_rate, false);
      if (status.is_ok()) status = method_->test();
    }
    if (status.is_busy()) return status;
    if (status.is_error()) return noted(std::move(status));
    if (step.model != nullptr) copy_parameters(step.model);
    const bool is_step = stage_ == Stage::kBeginning || stage_ == Stage::kFinishing;
    stage_ = is_step ? Stage::kIdle : Stage::kOver;
    return status;
  }
  // Copies them to `model` if there was a step.
  void copy_parameters(float* model) const {
    if (iteration_ == 0) return;
    const std::span<const float> own = method_->parameters();
    std::copy_n(own.data(), own.size(), model);
  }

 private:
  enum class Stage : std::uint8_t {
    kIdle,
    kBeginning,
    kFinishing,
    kLeaving,
    kServing,  // a server, from the start
    kOver,
    kFailed
  };

  // An error is that of all later operations, too.
  Status noted(Status status) {
    if (status.is_error()) {
      stage_ = Stage::kFailed;
      failure_ = status;
    }
    return status;
  }

  std::unique_ptr<Method> method_;
  Status failure_;  // in kFailed
  bool is_connected_ = false;
  Stage stage_;
  std::uint64_t iteration_ = 0;  // the next one
};

class Training::Operation final : public ResidentOperation {
 public:
  Operation(std::shared_ptr<Body> body, const Step& step)
      : ResidentOperation(body), body_(std::move(body)), step_(step) {}

  Status begin(Kind kind, bool has_own_step) {
    if (body_->get() == nullptr) return closed();
    DUNLIN_TRY(body_->start(kind, step_, has_own_step));
    is_begun_ = kind != Kind::kServe;  // a server continues after a call of serve()
    return Status::ok();
  }
  Status test() override {
    if (is_over()) return outcome();
    if (body_->get() == nullptr) return closed();
    Status status = body_->test(step_);
    if (!status.is_busy()) is_begun_ = false;
    // Ends it also after a timeout, after which other operations would continue.
    if (!status.is_busy()) finish(status);
    return status;
  }

 protected:
  void detach() override {
    if (std::exchange(is_begun_, false) && body_->get() != nullptr) body_->give_up();
  }
  std::vector<Awaited> awaited() const override {
    return body_->get() == nullptr ? std::vector<Awaited>() : body_->get()->awaited();
  }

 private:
  std::shared_ptr<Body> body_;
  Step step_;
  bool is_begun_ = false;  // and not ended by test()
};

Result<std::shared_ptr<Training>> Training::create(Session& session, MethodOptions options,
                                                   const Session::Interrupt& interrupt,
                                                   Status mistake) {
  DUNLIN_TRY(session.check_fixed(options.name));
  std::shared_ptr<Training> made(new Training(session, std::move(options)));
  DUNLIN_TRY(made->build(interrupt, std::move(mistake)));
  return made;
}

Status Training::build(const Session::Interrupt& interrupt, Status mistake) {
  const std::uint64_t number = session_.next_number();
  const std::string what =
      fmt::format("making '{}', for {}", options_.name, to_string(options_.kind));
  const auto prepare = [&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
    DUNLIN_TRY(mistake);
    MethodOptions wanted = options_;
    wanted.name = fmt::format("{}/{}", options_.name, number);
    DUNLIN_ASSIGN(auto method, training::prepare_method(fabric, wanted));
    is_server_ = method->is_server();
    body_ = std::make_shared<Body>(fabric, std::move(method));
    return std::shared_ptr<Resident>(body_);
  };
  const auto connect = [&] {
    return session_.with_fabric(
        [&](Fabric&) { return body_->get() == nullptr ? closed() : body_->connect(); });
  };
  return attach_together(session_, prepare, connect, what, text_of(options_, number), interrupt);
}

Session::Make Training::maker(Kind kind, const Step& step) const {
  return [=, this](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto operation = std::make_shared<Operation>(body_, step);
    Status status = operation->begin(kind, options_.has_own_step);
    if (!status.is_ok()) return std::move(status).with_context(fmt::format("'{}'", options_.name));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  };
}

Result<std::shared_ptr<SessionOperation>> Training::start(const Step& step) {
  return session_.start(maker(Kind::kStep, step));
}

Status Training::run(const Step& step, const Session::Interrupt& interrupt,
                     std::shared_ptr<SessionOperation>* unfinished) {
  return session_.run(maker(Kind::kStep, step), session_.config().deadline, interrupt, unfinished);
}

Status Training::leave(float* model, const Session::Interrupt& interrupt) {
  std::shared_ptr<SessionOperation> leaving;
  DUNLIN_TRY(session_.with_fabric([&](Fabric& fabric) -> Status {
    if (!leaving_) {
      DUNLIN_ASSIGN(leaving_, maker(Kind::kLeave, {})(fabric));
    }
    leaving = leaving_;
    return Status::ok();
  }));
  Status status = session_.wait(leaving, session_.config().deadline, interrupt);
  return session_.with_fabric([&](Fabric&) -> Status {
    // A wait may end before the operation that then ends, too.
    if (leaving->is_over() && status.code() == leaving->outcome().code()) leaving_.reset();
    if (status.is_ok() && model != nullptr && body_->get() != nullptr)
      body_->copy_parameters(model);
    return status;
  });
}

Status Training::serve(Duration timeout, const Session::Interrupt& interrupt) {
  std::shared_ptr<SessionOperation> unfinished;
  Status status = session_.run(maker(Kind::kServe, {}), timeout, interrupt, &unfinished);
  if (unfinished) session_.abandon(unfinished, status);
  return status;
}

Result<training::MethodReport> Training::report() {
  training::MethodReport report;
  DUNLIN_TRY(session_.with_fabric([&](Fabric&) -> Status {
    if (body_->get() == nullptr) return closed();
    report = body_->get()->report();
    return Status::ok();
  }));
  return report;
}

}  // namespace dunlin::binding
