#include "bindings/session/straggler_ring.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "bindings/session/agreement.h"
#include "bindings/session/whole_job_reduce.h"

namespace dunlin::binding {

using collective::DataType;
using collective::Lateness;
using collective::StragglerOptions;
using collective::StragglerReport;
using transport::Awaited;
using transport::Fabric;

class StragglerRing::Body : public WholeJobReduce {
 public:
  using WholeJobReduce::WholeJobReduce;

  virtual SharedMemory data() const = 0;
  virtual Status begin() = 0;
  virtual Status advance() = 0;
  const Statistics& statistics() const { return statistics_; }

 protected:
  void add(const StragglerReport& report) {
    ++statistics_.all_reduces;
    statistics_.timeouts += report.timeouts;
    statistics_.skips += report.skips;
    statistics_.skipped += report.skipped;
    statistics_.forwards += report.forwards;
    statistics_.bytes_sent += report.bytes_sent;
    statistics_.took += report.took;
  }

 private:
  Statistics statistics_;
};

template <typename T>
class StragglerRing::TypedBody final : public Body {
 public:
  TypedBody(Fabric& fabric, std::vector<Rank> members, std::string title,
            std::unique_ptr<collective::StragglerRing<T>> ring)
      : Body(fabric, std::move(members), std::move(title)), ring_(std::move(ring)) {}

  void close() override {
    awake_.reset();
    ring_.reset();
  }
  bool is_open() const override { return ring_ != nullptr; }
  Status connect() override { return ring_->connect(); }
  std::vector<Awaited> awaited() const override { return ring_->awaited(); }
  SharedMemory data() const override {
    return {std::as_writable_bytes(ring_->data()), ring_->owner_of_data()};
  }
  Status begin() override { return ring_->start(); }
  void stop(const Status& outcome) override {
    awake_.reset();
    ring_->stop(outcome);
  }
  Status advance() override {
    Status status = ring_->test();
    // Waits of the session know no timeouts of their own, so a wait for one must not sleep.
    if (!status.is_busy() || !ring_->next_event()) {
      awake_.reset();
    } else if (!awake_) {
      awake_.emplace(fabric());
    }
    if (status.is_ok()) add(ring_->report());
    return status;
  }

 private:
  std::unique_ptr<collective::StragglerRing<T>> ring_;  // null: closed
  std::optional<Fabric::StayAwake> awake_;
};

Result<std::shared_ptr<StragglerRing>> StragglerRing::create(Session& session, Options options,
                                                             const Session::Interrupt& interrupt,
                                                             Status mistake) {
  std::shared_ptr<StragglerRing> made(new StragglerRing(session, std::move(options)));
  DUNLIN_TRY(made->build(interrupt, std::move(mistake)));
  return made;
}

Result<std::shared_ptr<Resident>> StragglerRing::prepare(Fabric& fabric, std::uint64_t number) {
  StragglerOptions wanted;
  wanted.name = fmt::format("ring/{}/{}", options_.name, number);
  wanted.membership = {0, session_.members()};
  wanted.count = options_.count;
  wanted.is_average = options_.is_average;
  wanted.lateness = options_.lateness;
  const auto make = [&]<typename T>(T) -> Result<std::shared_ptr<Resident>> {
    DUNLIN_ASSIGN(auto ring, collective::StragglerRing<T>::prepare(fabric, std::move(wanted)));
    body_ = std::make_shared<TypedBody<T>>(fabric, session_.members(), title(), std::move(ring));
    return std::shared_ptr<Resident>(body_);
  };
  return options_.type == DataType::kFloat32 ? make(float()) : make(double());
}

Status StragglerRing::build(const Session::Interrupt& interrupt, Status mistake) {
  const std::uint64_t number = session_.next_number();
  const std::string what = "making " + title();
  const auto refuse = [&](Status why) {
    if (mistake.is_ok() && !why.is_ok()) mistake = std::move(why).with_context(what);
  };
  if (options_.type != DataType::kFloat32 && options_.type != DataType::kFloat64)
    refuse({Code::kInvalidArgument, "the type has to be float32 or float64"});
  if (options_.count == 0) refuse({Code::kInvalidArgument, "a vector needs at least one element"});
  refuse(Lateness::check(options_.lateness));
  const auto& late = options_.lateness;
  const std::string alike =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", number, options_.name, to_string(options_.type),
                  options_.count, options_.is_average, static_cast<int>(late.mode), late.alpha,
                  late.step.count(), late.transfer.count(), late.floor.count());
  // An error that one rank finds becomes an error at all ranks, so that none waits in vain.
  DUNLIN_TRY(agree(session_, std::move(mistake), what, alike, interrupt));
  const auto connect = [&] {
    return with_open(session_, *body_, [&](Body& body) {
      data_ = body.data();
      return body.connect();
    });
  };
  return attach_together(
      session_, [&](Fabric& fabric) { return prepare(fabric, number); }, connect, what, {},
      interrupt);
}

Status StragglerRing::free(const Session::Interrupt& interrupt) {
  return free_together(session_, *body_, interrupt);
}

std::string StragglerRing::title() const {
  return fmt::format("the straggler-aware ring '{}'", options_.name);
}

Session::Make StragglerRing::maker() const {
  Body* const body = body_.get();
  return reduce_maker(
      body_, options_.name, [=] { return body->begin(); }, [=] { return body->advance(); });
}

Result<std::shared_ptr<SessionOperation>> StragglerRing::start() {
  return session_.start(maker());
}

Status StragglerRing::run(const Session::Interrupt& interrupt,
                          std::shared_ptr<SessionOperation>* unfinished) {
  return session_.run(maker(), session_.config().deadline, interrupt, unfinished);
}

Result<StragglerRing::Statistics> StragglerRing::statistics() {
  Statistics statistics;
  DUNLIN_TRY(with_open(session_, *body_, [&](Body& body) {
    statistics = body.statistics();
    return Status::ok();
  }));
  return statistics;
}

}  // namespace dunlin::binding
