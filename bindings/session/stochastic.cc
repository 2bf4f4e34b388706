#include "bindings/session/stochastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "bindings/session/agreement.h"
#include "collectives/waiting/member_watch.h"
#include "runtime/fnv.h"

namespace dunlin::binding {

using collective::DataType;
using collective::MemberWatch;
using collective::ReduceOptions;
using collective::ReduceReport;
using transport::Awaited;
using transport::Fabric;

namespace {

std::vector<Rank> ranks_of(const Fabric& fabric) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < fabric.size(); ++rank) ranks.emplace_back(rank);
  return ranks;
}

// The options that have to be the same on all ranks, as a text.
std::string text_of(const StochasticReduce::Options& options, std::uint64_t number) {
  Fnv edges;
  if (options.graph) {
    for (int node = 0; node < options.graph->nodes(); ++node) {
      for (const int to : options.graph->out_neighbors(node))
        edges.add(static_cast<std::uint64_t>(node)).add(static_cast<std::uint64_t>(to));
    }
  }
  return fmt::format("{} {} {} {} {} {} {} {}", number, options.name, to_string(options.type),
                     options.count, edges.value(), to_string(options.weighting),
                     to_string(options.mode), options.depth);
}

}  // namespace

// The part that doesn't depend on the type: whether a reduce is in progress, and its errors.
class StochasticReduce::Body : public Resident {
 public:
  explicit Body(Fabric& fabric)
      : Resident(fabric), members_(ranks_of(fabric)), watch_(fabric, members_) {}

  void progress() override {}  // the operation does it, in test()
  // Neighbors may be ahead by `depth` reduces. Transports with connections (tcp) take their models
  // in only while this rank's fabric is progressed.
  bool is_served() const override { return is_open() && !failure_.is_error(); }

  virtual bool is_open() const = 0;
  virtual Status connect() = 0;
  virtual std::vector<Awaited> awaited() const = 0;

  bool is_reducing() const { return is_reducing_; }
  const Statistics& statistics() const { return statistics_; }

  Status start(const void* model) {
    if (is_reducing_)
      return {Code::kInvalidArgument, "starts a reduce while the last one is in progress"};
    DUNLIN_TRY(failure_);
    began_ = fabric().clock().now();
    // Reduces that never have to wait find dead ranks here.
    DUNLIN_TRY(keep(check_members()));
    DUNLIN_TRY(keep(begin(model)));
    is_reducing_ = true;
    return Status::ok();
  }
  // kBusy, or, once, the outcome.
  Status test(void* result) {
    Status status = unexplained_.is_error() ? unexplained_ : advance(result);
    if (!status.is_ok()) status = explain(std::move(status));
    if (const Status left = status.is_busy() ? check_awaited() : Status::ok(); left.is_error()) {
      // It may have sent its model before it left.
      status = advance(result);
      if (status.is_busy()) status = left;
    }
    if (status.is_busy()) return status;
    is_reducing_ = false;
    return keep(std::move(status));
  }
  // The operation in progress was ended by another error than those of test().
  void give_up() {
    if (!std::exchange(is_reducing_, false) || failure_.is_error()) return;
    failure_ = {Code::kClosed,
                "a reduce has failed or was given up, so the ranks' models no longer "
                "match: make another StochasticReduce"};
  }

 protected:
  virtual Status begin(const void* model) = 0;
  virtual Status advance(void* result) = 0;

  void add(const ReduceReport& report) {
    ++statistics_.reduces;
    statistics_.inputs += report.inputs;
    statistics_.torn += report.torn;
    statistics_.stale += report.stale;
    statistics_.bytes_sent += report.bytes_sent;
    statistics_.waited += report.waited;
  }

 private:
  // A notice of a death takes milliseconds on one host and at most a heartbeat between hosts. An
  // error that is not explained by then has another cause.
  static constexpr auto kNoticeTime = std::chrono::milliseconds(500);

  Status check_members() {
    return watch_.check([this] { return awaited(); }, began_);
  }
  // kPeerDead if a rank that this one waits for has left the job.
  Status check_awaited() {
    const PeerTable& peers = fabric().peers();
    if (const std::uint64_t version = peers.version(); version != seen_) {
      seen_ = version;
      is_anybody_gone_ = peers.is_anybody_gone();
    }
    if (!is_anybody_gone_) return Status::ok();
    for (const Awaited& wait : awaited()) {
      Status status = peers.check(wait.peer);
      if (status.is_error()) return std::move(status).with_context("waiting for " + wait.what);
    }
    return Status::ok();
  }
  // Returns the death that `status` follows from, or that ends the wait. A peer may have closed its
  // connection because of a death, and that may arrive before the notice of it; kBusy meanwhile.
  Status explain(Status status) {
    DUNLIN_TRY(check_members());
    if (!MemberWatch::may_follow_death(status)) return status;
    const TimePoint now = fabric().clock().now();
    if (!unexplained_.is_error()) {
      unexplained_ = std::move(status);
      unexplained_since_ = now;
    }
    return now - unexplained_since_ > kNoticeTime ? unexplained_ : Status::busy();
  }
  Status keep(Status status) {
    if (status.is_error()) failure_ = status;
    return status;
  }

  const std::vector<Rank> members_;
  MemberWatch watch_;
  bool is_reducing_ = false;
  std::uint64_t seen_ = ~std::uint64_t{0};  // version of the peer table at the last check
  bool is_anybody_gone_ = false;
  TimePoint began_{};
  Status failure_;      // of an earlier reduce: no other one is possible
  Status unexplained_;  // an error that a death may have caused
  TimePoint unexplained_since_{};
  Statistics statistics_;
};

template <typename T>
class StochasticReduce::TypedBody final : public Body {
 public:
  TypedBody(Fabric& fabric, std::unique_ptr<collective::StochasticReduce<T>> reduce)
      : Body(fabric), reduce_(std::move(reduce)) {}

  void close() override { reduce_.reset(); }
  bool is_open() const override { return reduce_ != nullptr; }
  Status connect() override { return reduce_->connect(); }
  std::vector<Awaited> awaited() const override { return reduce_->awaited(); }

 protected:
  Status begin(const void* model) override {
    std::copy_n(static_cast<const T*>(model), reduce_->model().size(), reduce_->model().data());
    return reduce_->start();
  }
  Status advance(void* result) override {
    DUNLIN_TRY(reduce_->test());
    add(reduce_->report());
    std::copy_n(reduce_->model().data(), reduce_->model().size(), static_cast<T*>(result));
    return Status::ok();
  }

 private:
  std::unique_ptr<collective::StochasticReduce<T>> reduce_;  // null: closed
};

class StochasticReduce::Reduce final : public ResidentOperation {
 public:
  Reduce(std::shared_ptr<Body> body, void* result)
      : ResidentOperation(body), body_(std::move(body)), result_(result) {}

  Status begin(const void* model) {
    DUNLIN_TRY(body_->start(model));
    is_begun_ = true;
    return Status::ok();
  }
  Status test() override {
    if (is_over()) return outcome();
    if (!body_->is_open()) return closed();
    Status status = body_->test(result_);
    if (status.is_busy()) return status;
    is_begun_ = false;
    // Ends it also after a timeout, after which other operations would continue.
    finish(status);
    return status;
  }

 protected:
  void detach() override {
    if (std::exchange(is_begun_, false)) body_->give_up();
  }
  std::vector<Awaited> awaited() const override {
    return body_->is_open() ? body_->awaited() : std::vector<Awaited>();
  }

 private:
  std::shared_ptr<Body> body_;
  void* result_;
  bool is_begun_ = false;  // and not ended by test()
};

// The session is open, so a body that is closed was freed.
Status StochasticReduce::check_open() const {
  if (body_->is_open()) return Status::ok();
  return {Code::kClosed, fmt::format("the stochastic reduce '{}' was freed", options_.name)};
}

template <typename Use>
Status StochasticReduce::with_body(Use&& use) {
  return session_.with_fabric([&](Fabric&) -> Status {
    DUNLIN_TRY(check_open());
    return use(*body_);
  });
}

Result<std::shared_ptr<StochasticReduce>> StochasticReduce::create(
    Session& session, Options options, const Session::Interrupt& interrupt, Status mistake) {
  std::shared_ptr<StochasticReduce> made(new StochasticReduce(session, std::move(options)));
  DUNLIN_TRY(made->build(interrupt, std::move(mistake)));
  return made;
}

Result<std::shared_ptr<Resident>> StochasticReduce::prepare(Fabric& fabric, std::uint64_t number) {
  ReduceOptions wanted;
  wanted.name = fmt::format("reduces/{}/{}", options_.name, number);
  wanted.membership = {0, ranks_of(fabric)};
  DUNLIN_ASSIGN(wanted.neighborhood,
                collective::neighborhood_of(*options_.graph, options_.weighting,
                                            wanted.membership.members, fabric.rank()));
  wanted.count = options_.count;
  wanted.mode = options_.mode;
  wanted.depth = options_.depth;
  const auto make = [&]<typename T>(T) -> Result<std::shared_ptr<Resident>> {
    DUNLIN_ASSIGN(auto reduce, collective::StochasticReduce<T>::prepare(fabric, std::move(wanted)));
    body_ = std::make_shared<TypedBody<T>>(fabric, std::move(reduce));
    return std::shared_ptr<Resident>(body_);
  };
  return options_.type == DataType::kFloat32 ? make(float()) : make(double());
}

Status StochasticReduce::build(const Session::Interrupt& interrupt, Status mistake) {
  const std::uint64_t number = session_.next_number();
  const std::string what = fmt::format("making the stochastic reduce '{}'", options_.name);
  const auto refuse = [&](const char* why) {
    if (mistake.is_ok()) mistake = {Code::kInvalidArgument, fmt::format("{}: {}", what, why)};
  };
  if (options_.type != DataType::kFloat32 && options_.type != DataType::kFloat64)
    refuse("the type has to be float32 or float64");
  if (options_.count == 0) refuse("a model needs at least one element");
  if (options_.depth == 0) refuse("with depth 0 no model can be received");
  if (!options_.graph) refuse("there is no graph");
  // An error that one rank finds becomes an error at all ranks, so that none waits in vain.
  DUNLIN_TRY(agree(session_, std::move(mistake), what, text_of(options_, number), interrupt));
  Status status = session_.attach([&](Fabric& fabric) { return prepare(fabric, number); });
  // After this agreement all ranks are prepared, so that connect() doesn't wait.
  status = agree(session_, std::move(status), what, {}, interrupt);
  if (status.is_ok()) {
    status = with_body([](Body& body) { return body.connect(); });
    status = agree(session_, std::move(status), what, {}, interrupt);
  }
  if (!status.is_ok() && body_) session_.detach(*body_);
  return status;
}

Status StochasticReduce::free(const Session::Interrupt& interrupt) {
  const std::string what = fmt::format("freeing the stochastic reduce '{}'", options_.name);
  bool is_reducing = false;
  DUNLIN_TRY(with_body([&](Body& body) {
    is_reducing = body.is_reducing();
    return Status::ok();
  }));
  Status own;
  if (is_reducing) own = {Code::kInvalidArgument, what + ": a reduce is in progress"};
  Status status = agree(session_, std::move(own), what, {}, interrupt);
  if (status.is_ok() || status.code() == Code::kPeerDead) session_.detach(*body_);
  return status;
}

Session::Make StochasticReduce::maker(const void* model, void* result) const {
  return [=, this](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    DUNLIN_TRY(check_open());
    auto operation = std::make_shared<Reduce>(body_, result);
    Status status = operation->begin(model);
    if (!status.is_ok()) return std::move(status).with_context(fmt::format("'{}'", options_.name));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  };
}

Result<std::shared_ptr<SessionOperation>> StochasticReduce::start(const void* model, void* result) {
  return session_.start(maker(model, result));
}

Status StochasticReduce::run(const void* model, void* result, const Session::Interrupt& interrupt,
                             std::shared_ptr<SessionOperation>* unfinished) {
  return session_.run(maker(model, result), session_.config().deadline, interrupt, unfinished);
}

Result<StochasticReduce::Statistics> StochasticReduce::statistics() {
  Statistics statistics;
  DUNLIN_TRY(with_body([&](Body& body) {
    statistics = body.statistics();
    return Status::ok();
  }));
  return statistics;
}

}  // namespace dunlin::binding
