#include "bindings/session/stochastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bindings/session/agreement.h"
#include "bindings/session/whole_job_reduce.h"
#include "runtime/fnv.h"

namespace dunlin::binding {

using collective::DataType;
using collective::ReduceOptions;
using collective::ReduceReport;
using transport::Awaited;
using transport::Fabric;

namespace {

// The options that have to be the same on all ranks, as a text.
std::string text_of(const StochasticReduce::Options& options, std::uint64_t number) {
  Fnv edges;
  if (options.graph) {
    for (int node = 0; node < options.graph->nodes(); ++node) {
      for (const int to : options.graph->out_neighbors(node))
        edges.add(static_cast<std::uint64_t>(node)).add(static_cast<std::uint64_t>(to));
    }
  }
  return fmt::format("{} {} {} {} {} {} {} {} {}", number, options.name, to_string(options.type),
                     options.count, edges.value(), to_string(options.weighting),
                     to_string(options.mode), options.depth, options.gpu ? "GPU" : "host");
}

}  // namespace

// The part that doesn't depend on the type.
class StochasticReduce::Body : public WholeJobReduce {
 public:
  using WholeJobReduce::WholeJobReduce;

  virtual Status begin(const ModelMemory& memory) = 0;
  virtual Status advance() = 0;
  const Statistics& statistics() const { return statistics_; }

 protected:
  void add(const ReduceReport& report) {
    ++statistics_.reduces;
    statistics_.inputs += report.inputs;
    statistics_.torn += report.torn;
    statistics_.stale += report.stale;
    statistics_.bytes_sent += report.bytes_sent;
    statistics_.waited += report.waited;
  }

 private:
  Statistics statistics_;
};

template <typename T>
class StochasticReduce::TypedBody final : public Body {
 public:
  TypedBody(Fabric& fabric, std::vector<Rank> members, std::string title,
            std::unique_ptr<collective::StochasticReduce<T>> reduce, ModelCopies copies)
      : Body(fabric, std::move(members), std::move(title)),
        reduce_(std::move(reduce)),
        copies_(std::move(copies)) {}

  void close() override {
    copies_ = {};  // waits for them
    reduce_.reset();
  }
  bool is_open() const override { return reduce_ != nullptr; }
  Status connect() override { return reduce_->connect(); }
  std::vector<Awaited> awaited() const override {
    return copied_.is_averaging() ? reduce_->awaited() : awaited_copies(fabric());
  }
  bool uses_memory() override { return copied_.is_copying(copies_, copies_); }
  void stop(const Status& outcome) override { reduce_->stop(outcome); }
  void release_memory() override { copied_.settle(copies_, copies_); }
  Status begin(const ModelMemory& memory) override {
    copied_ = CopiedAverage(memory, reduce_->model().size_bytes());
    return copied_.begin(copies_, reduce_->model().data());
  }
  Status advance() override {
    const auto test = [&]() -> Status {
      DUNLIN_TRY(reduce_->test());
      add(reduce_->report());
      return Status::ok();
    };
    return copied_.advance(
        copies_, copies_, [&] { return reduce_->start(); }, test,
        [&] { return reduce_->model().data(); });
  }

 private:
  std::unique_ptr<collective::StochasticReduce<T>> reduce_;  // null: closed
  ModelCopies copies_;
  CopiedAverage copied_;  // the last reduce
};

Result<std::shared_ptr<StochasticReduce>> StochasticReduce::create(
    Session& session, Options options, const Session::Interrupt& interrupt, Status mistake) {
  std::shared_ptr<StochasticReduce> made(new StochasticReduce(session, std::move(options)));
  DUNLIN_TRY(made->build(interrupt, std::move(mistake)));
  return made;
}

Result<std::shared_ptr<Resident>> StochasticReduce::prepare(Fabric& fabric, std::uint64_t number) {
  ReduceOptions wanted;
  wanted.name = fmt::format("reduces/{}/{}", options_.name, number);
  wanted.membership = {0, session_.members()};
  DUNLIN_ASSIGN(wanted.neighborhood,
                collective::neighborhood_of(*options_.graph, options_.weighting,
                                            wanted.membership.members, fabric.rank()));
  wanted.count = options_.count;
  wanted.mode = options_.mode;
  wanted.depth = options_.depth;
  wanted.gpu = options_.gpu;
  DUNLIN_ASSIGN(ModelCopies copies, ModelCopies::create(fabric, options_.gpu));
  const auto make = [&]<typename T>(T) -> Result<std::shared_ptr<Resident>> {
    DUNLIN_ASSIGN(auto reduce, collective::StochasticReduce<T>::prepare(fabric, std::move(wanted)));
    body_ = std::make_shared<TypedBody<T>>(fabric, session_.members(), title(), std::move(reduce),
                                           std::move(copies));
    return std::shared_ptr<Resident>(body_);
  };
  return options_.type == DataType::kFloat32 ? make(float()) : make(double());
}

Status StochasticReduce::build(const Session::Interrupt& interrupt, Status mistake) {
  const std::uint64_t number = session_.next_number();
  const std::string what = "making " + title();
  const auto refuse = [&](const char* why) {
    if (mistake.is_ok()) mistake = {Code::kInvalidArgument, fmt::format("{}: {}", what, why)};
  };
  if (options_.type != DataType::kFloat32 && options_.type != DataType::kFloat64)
    refuse("the type has to be float32 or float64");
  if (options_.count == 0) refuse("a model needs at least one element");
  if (options_.depth == 0) refuse("with depth 0 no model can be received");
  if (!options_.graph) refuse("there is no graph");
  if (options_.gpu && options_.mode != collective::SyncMode::kNotifyAck)
    refuse("models in the memory of a GPU need the mode notify-ack");
  // An error that one rank finds becomes an error at all ranks, so that none waits in vain.
  DUNLIN_TRY(agree(session_, std::move(mistake), what, text_of(options_, number), interrupt));
  const auto connect = [&] {
    return with_open(session_, *body_, [](Body& body) { return body.connect(); });
  };
  return attach_together(
      session_, [&](Fabric& fabric) { return prepare(fabric, number); }, connect, what, {},
      interrupt);
}

Status StochasticReduce::free(const Session::Interrupt& interrupt) {
  return free_together(session_, *body_, interrupt);
}

std::string StochasticReduce::title() const {
  return fmt::format("the stochastic reduce '{}'", options_.name);
}

Session::Make StochasticReduce::maker(const ModelMemory& memory) const {
  Body* const body = body_.get();
  return reduce_maker(
      body_, options_.name, [=] { return body->begin(memory); }, [=] { return body->advance(); });
}

Result<std::shared_ptr<SessionOperation>> StochasticReduce::start(const ModelMemory& memory) {
  return session_.start(maker(memory));
}

Status StochasticReduce::run(const ModelMemory& memory, const Session::Interrupt& interrupt,
                             std::shared_ptr<SessionOperation>* unfinished) {
  return session_.run(maker(memory), session_.config().deadline, interrupt, unfinished);
}

Result<StochasticReduce::Statistics> StochasticReduce::statistics() {
  Statistics statistics;
  DUNLIN_TRY(with_open(session_, *body_, [&](Body& body) {
    statistics = body.statistics();
    return Status::ok();
  }));
  return statistics;
}

}  // namespace dunlin::binding
