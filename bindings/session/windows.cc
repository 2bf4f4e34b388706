#include "bindings/session/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bindings/session/agreement.h"

namespace dunlin::binding {

using collective::DataType;
using collective::DepositKind;
using collective::NeighborCall;
using collective::NeighborWindow;
using collective::WindowOptions;
using transport::Awaited;
using transport::Fabric;

class Window::Body : public Resident {
 public:
  using Resident::Resident;
  bool is_served() const override { return is_open(); }
  // A window of a job whose ranks stay the same goes on among the survivors of a death.
  bool outlasts_members() const override { return true; }

  virtual bool is_open() const = 0;
  virtual Status connect() = 0;
  virtual SharedMemory tensor() const = 0;
  virtual Status deposit(DepositKind kind, std::span<const WeightedPeer> to,
                         double self_weight) = 0;
  virtual Result<Report> update(const Update& what) = 0;
  virtual double p() const = 0;
  virtual void set_p(double p) = 0;
  virtual Status publish() = 0;
  virtual Result<Buffer> buffer(Rank from, void* tensor) = 0;
  virtual Status flush() = 0;
  virtual std::vector<Awaited> awaited() const = 0;
  virtual Status start_get(std::span<const WeightedPeer> from) = 0;
  virtual Status test_get() = 0;
  virtual void cancel_get() = 0;
};

template <typename T>
class Window::TypedBody final : public Body {
 public:
  TypedBody(Fabric& fabric, std::unique_ptr<NeighborWindow<T>> window)
      : Body(fabric), window_(std::move(window)) {}

  void progress() override {
    if (!window_ || !is_connected_) return;
    // Errors are returned by its calls.
    (void)window_->progress();
  }
  void close() override { window_.reset(); }
  bool is_open() const override { return window_ != nullptr; }
  Status connect() override {
    DUNLIN_TRY(window_->connect());
    is_connected_ = true;
    return Status::ok();
  }
  SharedMemory tensor() const override {
    return {std::as_writable_bytes(window_->self()), window_->owner_of_self()};
  }
  Status deposit(DepositKind kind, std::span<const WeightedPeer> to, double self_weight) override {
    return (kind == DepositKind::kPut ? window_->put(to, self_weight)
                                      : window_->accumulate(to, self_weight))
        .status();
  }
  Result<Report> update(const Update& what) override {
    const std::span<T> result(static_cast<T*>(what.result),
                              what.result == nullptr ? 0 : window_->self().size());
    DUNLIN_ASSIGN(const auto report,
                  window_->update({what.self_weight, what.from, what.reset, result}));
    return Report{report.p, report.deposits};
  }
  double p() const override { return window_->p(); }
  void set_p(double p) override { window_->set_p(p); }
  Status publish() override { return window_->publish(); }
  Result<Buffer> buffer(Rank from, void* tensor) override {
    (void)window_->progress();
    DUNLIN_ASSIGN(const auto found,
                  tensor == nullptr
                      ? window_->buffer(from)
                      : window_->buffer(from, {static_cast<T*>(tensor), window_->self().size()}));
    return Buffer{found.p, found.version};
  }
  Status flush() override { return window_->flush(); }
  std::vector<Awaited> awaited() const override { return window_->awaited(); }
  Status start_get(std::span<const WeightedPeer> from) override { return window_->start_get(from); }
  Status test_get() override { return window_->test_get(); }
  void cancel_get() override { window_->cancel_get(); }

 private:
  std::unique_ptr<NeighborWindow<T>> window_;  // null: closed
  bool is_connected_ = false;
};

class Window::Flush final : public ResidentOperation {
 public:
  explicit Flush(std::shared_ptr<Body> body) : ResidentOperation(body), body_(std::move(body)) {}
  Status test() override {
    if (is_over()) return outcome();
    return body_->is_open() ? body_->flush() : closed();
  }

 protected:
  std::vector<Awaited> awaited() const override {
    return body_->is_open() ? body_->awaited() : std::vector<Awaited>();
  }

 private:
  std::shared_ptr<Body> body_;
};

class Window::Get final : public ResidentOperation {
 public:
  Get(std::shared_ptr<Body> body, std::span<const WeightedPeer> from)
      : ResidentOperation(body), body_(std::move(body)), from_(from.begin(), from.end()) {}

  Status test() override {
    if (is_over()) return outcome();
    if (!body_->is_open()) return closed();
    if (!is_started_) DUNLIN_TRY(body_->start_get(from_));
    is_started_ = true;
    Status status = body_->test_get();
    is_ended_ = !status.is_busy();
    return status;
  }
  // Ends the operation.
  void cancel(const Status& why) {
    if (!is_over()) finish(why);
    if (is_started_ && !is_ended_ && body_->is_open()) body_->cancel_get();
  }

 protected:
  // The peers that it reads from take no part. If one dies, the next test() ends the operation.
  std::vector<Awaited> awaited() const override { return {}; }

 private:
  std::shared_ptr<Body> body_;
  std::vector<WeightedPeer> from_;
  bool is_started_ = false;
  bool is_ended_ = false;
};

template <typename Use>
Status Window::with_body(Use&& use) {
  return session_.with_fabric([&](Fabric&) -> Status {
    if (!body_->is_open())
      return {Code::kClosed, fmt::format("the window '{}' was freed", options_.name)};
    return use(*body_);
  });
}

Result<std::shared_ptr<Window>> Window::create(Session& session, Options options,
                                               const void* initial,
                                               const Session::Interrupt& interrupt,
                                               Status mistake) {
  DUNLIN_TRY(session.check_fixed("windows"));
  std::shared_ptr<Window> window(new Window(session, std::move(options)));
  DUNLIN_TRY(window->build(initial, interrupt, std::move(mistake)));
  return window;
}

Status Window::build(const void* initial, const Session::Interrupt& interrupt, Status own) {
  const std::uint64_t number = session_.next_number();
  const std::string what = fmt::format("making the window '{}'", options_.name);
  // An error that one rank finds becomes an error at all ranks, so that none waits in vain.
  if (own.is_ok() && options_.type != DataType::kFloat32 && options_.type != DataType::kFloat64) {
    own = {Code::kInvalidArgument,
           fmt::format("a window of {}: the type has to be float32 or float64",
                       to_string(options_.type))};
  }
  const std::string alike =
      fmt::format("{} {} {} {} {}", static_cast<int>(options_.type), options_.count,
                  options_.is_zeroed, options_.gpu.has_value(), options_.name);
  DUNLIN_TRY(agree(session_, std::move(own), what, alike, interrupt));
  NeighborCall call;
  call.sources = options_.sources;
  for (const Rank to : options_.destinations) {
    call.destinations.push_back({to, 1});
    all_destinations_.push_back({to, 1});
  }
  DUNLIN_TRY(check_neighbors(session_, call, interrupt));

  WindowOptions made;
  made.name = options_.name;
  made.epoch = number;
  made.count = options_.count;
  made.is_zeroed = options_.is_zeroed;
  made.is_readable = true;
  made.gpu = options_.gpu;
  made.neighborhood.out = options_.destinations;
  for (const auto& [rank, weight] : options_.sources) {
    made.neighborhood.in.push_back(rank);
    made.neighborhood.in_weights.push_back(weight);
  }
  const auto prepare = [&]<typename T>(Fabric& fabric, T) -> Result<std::shared_ptr<Resident>> {
    const std::span<const T> tensor(static_cast<const T*>(initial), options_.count);
    DUNLIN_ASSIGN(auto window, NeighborWindow<T>::prepare(fabric, made, tensor));
    body_ = std::make_shared<TypedBody<T>>(fabric, std::move(window));
    return std::shared_ptr<Resident>(body_);
  };
  const auto prepare_typed = [&](Fabric& fabric) {
    return options_.type == DataType::kFloat32 ? prepare(fabric, float())
                                               : prepare(fabric, double());
  };
  const auto connect = [&] {
    return with_body([&](Body& body) -> Status {
      tensor_ = body.tensor();
      return body.connect();
    });
  };
  return attach_together(session_, prepare_typed, connect, what, {}, interrupt);
}

Status Window::free(const Session::Interrupt& interrupt) {
  DUNLIN_TRY(with_body([](Body&) { return Status::ok(); }));
  Status status = flush(session_.config().deadline, interrupt);
  // A rank that couldn't deliver to a dead rank has to take part all the same.
  if (status.is_ok() || status.code() == Code::kPeerDead) {
    Status met =
        agree(session_, {}, fmt::format("freeing the window '{}'", options_.name), {}, interrupt);
    if (!met.is_ok()) status = std::move(met);
  }
  if (status.is_ok() || status.code() == Code::kPeerDead) session_.detach(*body_);
  return status;
}

Status Window::deposit(DepositKind kind, std::optional<std::span<const WeightedPeer>> to,
                       double self_weight) {
  return with_body(
      [&](Body& body) { return body.deposit(kind, to.value_or(all_destinations_), self_weight); });
}

Status Window::put(std::optional<std::span<const WeightedPeer>> to, double self_weight) {
  return deposit(DepositKind::kPut, to, self_weight);
}

Status Window::accumulate(std::optional<std::span<const WeightedPeer>> to, double self_weight) {
  return deposit(DepositKind::kAccumulate, to, self_weight);
}

Result<Window::Report> Window::update(const Update& what) {
  Report report;
  DUNLIN_TRY(with_body([&](Body& body) -> Status {
    DUNLIN_ASSIGN(report, body.update(what));
    return Status::ok();
  }));
  return report;
}

Result<double> Window::p() {
  double p = 0;
  DUNLIN_TRY(with_body([&](Body& body) {
    p = body.p();
    return Status::ok();
  }));
  return p;
}

Status Window::set_p(double p) {
  return with_body([&](Body& body) {
    body.set_p(p);
    return Status::ok();
  });
}

Status Window::publish() {
  return with_body([](Body& body) { return body.publish(); });
}

Result<Window::Buffer> Window::buffer(Rank from, void* tensor) {
  Buffer buffer;
  DUNLIN_TRY(with_body([&](Body& body) -> Status {
    DUNLIN_ASSIGN(buffer, body.buffer(from, tensor));
    return Status::ok();
  }));
  return buffer;
}

Status Window::flush(Duration timeout, const Session::Interrupt& interrupt) {
  DUNLIN_TRY(with_body([](Body&) { return Status::ok(); }));
  std::shared_ptr<SessionOperation> unfinished;
  const auto make = [&](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    return std::shared_ptr<SessionOperation>(std::make_shared<Flush>(body_));
  };
  Status status = session_.run(make, timeout, interrupt, &unfinished);
  if (unfinished) session_.abandon(unfinished, status);
  return status;
}

Status Window::get(std::span<const WeightedPeer> from, Duration timeout,
                   const Session::Interrupt& interrupt) {
  DUNLIN_TRY(with_body([](Body&) { return Status::ok(); }));
  const auto get = std::make_shared<Get>(body_, from);
  std::shared_ptr<SessionOperation> unfinished;
  const auto make = [&](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    return std::shared_ptr<SessionOperation>(get);
  };
  Status status = session_.run(make, timeout, interrupt, &unfinished);
  if (unfinished) {
    (void)session_.with_fabric([&](Fabric&) {
      get->cancel(status);
      return Status::ok();
    });
    session_.abandon(unfinished, status);
  }
  return status;
}

}  // namespace dunlin::binding
