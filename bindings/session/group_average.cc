#include "bindings/session/group_average.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bindings/session/agreement.h"

namespace dunlin::binding {

using collective::GroupAverageOptions;
using collective::GroupAverageStatistics;
using collective::GroupOptions;
using collective::WorkerLayout;
using transport::Awaited;
using transport::Fabric;

namespace {

WorkerLayout layout_of(const collective::Grouping& hosts) {
  const int each = static_cast<int>(hosts.members(0).size());
  for (int host = 0; host < hosts.groups(); ++host) {
    const std::span<const int> ranks = hosts.members(host);
    // Layouts number workers host by host.
    if (static_cast<int>(ranks.size()) != each || ranks.front() != host * each)
      return {hosts.size(), 1};
  }
  return {hosts.groups(), each};
}

// The options that have to be the same on all ranks, as a text.
std::string text_of(const GroupAverage::Options& options, std::uint64_t number) {
  const GroupOptions& groups = options.groups;
  return fmt::format("{} {} {} {} {}x{} {} {} {} {} {} {} {}", number, options.name, options.count,
                     to_string(options.source), groups.layout.hosts, groups.layout.workers_per_host,
                     groups.group_size, groups.slowdown_threshold, groups.inter_intra,
                     groups.intra_filter, groups.most_alone, groups.seed,
                     options.gpu ? "GPU" : "host");
}

Status over() {
  return {Code::kClosed, "Dunlin was shut down, or the members of the job have changed"};
}

}  // namespace

class GroupAverage::Body final : public Resident {
 public:
  Body(Fabric& fabric, std::unique_ptr<collective::GroupAverage> average, ModelCopies copies)
      : Resident(fabric), average_(std::move(average)), copies_(std::move(copies)) {}

  void progress() override {
    // Errors are returned by the next average.
    if (average_ && (is_served() || is_averaging_)) average_->progress();
  }
  bool is_served() const override {
    if (!average_) return false;
    const collective::GroupService* const service = average_->service();
    return service == nullptr ? has_failed_ : service->needs_progress();
  }
  void close() override {
    copies_ = {};  // waits for them
    average_.reset();
  }
  void leave() override {
    if (average_) (void)average_->leave();
  }
  collective::GroupAverage* get() const { return average_.get(); }  // null: closed

  Status start(std::optional<std::uint64_t> wanted, const ModelMemory& memory) {
    const std::uint64_t iteration = wanted.value_or(iteration_ ? *iteration_ + 1 : 0);
    if (is_averaging_)
      return {Code::kInvalidArgument,
              fmt::format("starts the average of iteration {} while the last one is in progress",
                          iteration)};
    DUNLIN_TRY(average_->check_start(iteration));
    copied_ = CopiedAverage(memory, average_->model().size_bytes());
    DUNLIN_TRY(copied_.begin(copies_, average_->model().data()));
    iteration_ = iteration;
    is_averaging_ = true;
    return Status::ok();
  }
  // kBusy, or, once, the outcome.
  Status test() {
    if (!outcome_) {
      Status status = copied_.advance(
          copies_, copies_, [&] { return average_->start(*iteration_); },
          [&] { return average_->test(); }, [&] { return average_->model().data(); });
      if (status.is_busy()) return status;
      outcome_ = std::move(status);
    }
    // After an error, a copy may still access the caller's memory.
    if (copied_.is_copying(copies_, copies_)) return Status::busy();
    is_averaging_ = false;
    Status outcome = *std::move(outcome_);
    outcome_.reset();
    has_failed_ = has_failed_ || outcome.is_error();
    return outcome;
  }
  // Something other than test() has ended the operation of the average.
  void give_up() {
    copied_.settle(copies_, copies_);
    outcome_.reset();
  }
  bool is_averaging() const { return is_averaging_; }
  std::vector<Awaited> awaited() const {
    if (!average_) return {};
    return copied_.is_averaging() ? average_->awaited() : awaited_copies(fabric());
  }

 private:
  std::unique_ptr<collective::GroupAverage> average_;
  ModelCopies copies_;
  std::optional<std::uint64_t> iteration_;  // of the last average
  CopiedAverage copied_;                    // the last average
  std::optional<Status> outcome_;           // of the average in progress, once it is known
  bool is_averaging_ = false;
  // Whether an average has failed: members of a static group may still have to be told.
  bool has_failed_ = false;
};

class GroupAverage::Average final : public ResidentOperation {
 public:
  explicit Average(std::shared_ptr<Body> body) : ResidentOperation(body), body_(std::move(body)) {}

  Status begin(std::optional<std::uint64_t> iteration, const ModelMemory& memory) {
    if (body_->get() == nullptr) return over();
    DUNLIN_TRY(body_->start(iteration, memory));
    is_begun_ = true;
    return Status::ok();
  }
  Status test() override {
    if (is_over()) return outcome();
    if (body_->get() == nullptr) return over();
    Status status = body_->test();
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
  std::vector<Awaited> awaited() const override { return body_->awaited(); }

 private:
  std::shared_ptr<Body> body_;
  bool is_begun_ = false;  // and not ended by test()
};

Result<std::shared_ptr<GroupAverage>> GroupAverage::create(Session& session, Options options,
                                                           const Session::Interrupt& interrupt,
                                                           Status mistake) {
  std::shared_ptr<GroupAverage> made(new GroupAverage(session, std::move(options)));
  if (made->options_.source == collective::GroupSource::kStatic)
    DUNLIN_TRY(session.check_fixed("a static schedule of groups"));
  DUNLIN_TRY(made->build(interrupt, std::move(mistake)));
  return made;
}

Status GroupAverage::build(const Session::Interrupt& interrupt, Status mistake) {
  GroupAverageOptions wanted;
  // Unlike the names of partial all-reduces, and of group averages that had this name before.
  const std::uint64_t number = session_.next_number();
  wanted.name = fmt::format("averages/{}/{}", options_.name, number);
  Status status = std::move(mistake);
  const auto make = [&] {
    return session_.attach([&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
      GroupOptions& groups = options_.groups;
      if (session_.is_elastic()) wanted.members = session_.members();
      if (groups.layout == WorkerLayout{})
        groups.layout = session_.is_elastic() ? WorkerLayout{fabric.size(), 1}
                                              : layout_of(session_.world()->communicator->hosts());
      groups.group_size = std::min(groups.group_size, std::max(session_.world()->size, 2));
      wanted.count = options_.count;
      wanted.source = options_.source;
      wanted.groups = groups;
      wanted.partial.gpu = options_.gpu;
      DUNLIN_ASSIGN(ModelCopies copies, ModelCopies::create(fabric, options_.gpu));
      DUNLIN_ASSIGN(auto average, collective::GroupAverage::create(fabric, wanted));
      body_ = std::make_shared<Body>(fabric, std::move(average), std::move(copies));
      return std::shared_ptr<Resident>(body_);
    });
  };
  const std::string what = fmt::format("making the group average '{}'", options_.name);
  if (status.is_ok()) status = without_exceptions(what, make);
  status = agree(session_, std::move(status), what, text_of(options_, number), interrupt);
  if (!status.is_ok() && body_) session_.detach(*body_);
  return status;
}

Session::Make GroupAverage::maker(std::optional<std::uint64_t> iteration,
                                  const ModelMemory& memory) const {
  return [=, this](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto operation = std::make_shared<Average>(body_);
    Status status = operation->begin(iteration, memory);
    if (!status.is_ok()) return std::move(status).with_context(fmt::format("'{}'", options_.name));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  };
}

Result<std::shared_ptr<SessionOperation>> GroupAverage::start(
    std::optional<std::uint64_t> iteration, const ModelMemory& memory) {
  return session_.start(maker(iteration, memory));
}

Status GroupAverage::run(std::optional<std::uint64_t> iteration, const ModelMemory& memory,
                         const Session::Interrupt& interrupt,
                         std::shared_ptr<SessionOperation>* unfinished) {
  return session_.run(maker(iteration, memory), session_.config().deadline, interrupt, unfinished);
}

template <typename Use>
Status GroupAverage::with_average(Use&& use) {
  return session_.with_fabric([&](Fabric&) -> Status {
    if (body_->get() == nullptr) return over();
    return use(*body_->get());
  });
}

Result<std::span<float>> GroupAverage::model() {
  std::span<float> model;
  DUNLIN_TRY(with_average([&](collective::GroupAverage& average) -> Status {
    if (body_->is_averaging())
      return {Code::kInvalidArgument,
              fmt::format("'{}': the model is being averaged", options_.name)};
    model = average.model();
    return Status::ok();
  }));
  return model;
}

Status GroupAverage::leave() {
  return with_average([](collective::GroupAverage& average) { return average.leave(); });
}

Result<bool> GroupAverage::is_over() {
  bool is_over = false;
  DUNLIN_TRY(with_average([&](collective::GroupAverage& average) {
    average.progress();
    is_over = average.service() != nullptr && average.service()->is_over();
    return Status::ok();
  }));
  return is_over;
}

Result<GroupAverageStatistics> GroupAverage::statistics() {
  GroupAverageStatistics statistics;
  DUNLIN_TRY(with_average([&](collective::GroupAverage& average) {
    statistics = average.statistics();
    return Status::ok();
  }));
  return statistics;
}

Result<Rank> GroupAverage::master() {
  Rank master;
  DUNLIN_TRY(with_average([&](collective::GroupAverage& average) {
    if (average.service() != nullptr) master = average.service()->master();
    return Status::ok();
  }));
  return master;
}

}  // namespace dunlin::binding
