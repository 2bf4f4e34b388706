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
    // Layouts number workers node by node.
    if (static_cast<int>(ranks.size()) != each || ranks.front() != host * each)
      return {hosts.size(), 1};
  }
  return {hosts.groups(), each};
}

// The options that have to be the same on all ranks, as a text.
std::string text_of(const GroupAverage::Options& options, std::uint64_t number) {
  const GroupOptions& groups = options.groups;
  return fmt::format("{} {} {} {} {}x{} {} {} {} {} {} {}", number, options.name, options.count,
                     to_string(options.source), groups.layout.nodes, groups.layout.workers_per_node,
                     groups.group_size, groups.slowdown_threshold, groups.inter_intra,
                     groups.intra_filter, groups.most_alone, groups.seed);
}

Status over() {
  return {Code::kClosed, "Dunlin was shut down, or the members of the job have changed"};
}

}  // namespace

class GroupAverage::Body final : public Resident {
 public:
  Body(Fabric& fabric, std::unique_ptr<collective::GroupAverage> average)
      : Resident(fabric), average_(std::move(average)) {}

  void progress() override {
    // Errors are returned by the next average.
    if (average_ && (is_served() || is_averaging_)) average_->progress();
  }
  bool is_served() const override {
    if (!average_) return false;
    const collective::GroupService* const service = average_->service();
    return service == nullptr ? has_failed_ : !service->is_over();
  }
  void close() override { average_.reset(); }
  void leave() override {
    if (average_) (void)average_->leave();
  }
  collective::GroupAverage* get() const { return average_.get(); }  // null: closed

  Status start(std::optional<std::uint64_t> wanted, const float* model) {
    const std::uint64_t iteration = wanted.value_or(next_iteration_);
    if (is_averaging_)
      return {Code::kInvalidArgument,
              fmt::format("starts the average of iteration {} while the last one is in progress",
                          iteration)};
    if (model != nullptr) {
      const std::span<float> own = average_->model();
      std::copy_n(model, own.size(), own.data());
    }
    DUNLIN_TRY(average_->start(iteration));
    next_iteration_ = std::max(next_iteration_, iteration + 1);
    is_averaging_ = true;
    return Status::ok();
  }
  // kBusy, or, once, the outcome.
  Status test(float* model) {
    Status status = average_->test();
    if (status.is_busy()) return status;
    is_averaging_ = false;
    has_failed_ = has_failed_ || status.is_error();
    if (model != nullptr && status.is_ok()) {
      const std::span<const float> own = average_->model();
      std::copy_n(own.data(), own.size(), model);
    }
    return status;
  }
  bool is_averaging() const { return is_averaging_; }

 private:
  std::unique_ptr<collective::GroupAverage> average_;
  std::uint64_t next_iteration_ = 0;
  bool is_averaging_ = false;
  // Whether an average has failed: members of a static group may still have to be told.
  bool has_failed_ = false;
};

class GroupAverage::Average final : public ResidentOperation {
 public:
  Average(std::shared_ptr<Body> body, float* model)
      : ResidentOperation(body), body_(std::move(body)), model_(model) {}

  Status begin(std::optional<std::uint64_t> iteration) {
    return body_->get() == nullptr ? over() : body_->start(iteration, model_);
  }
  Status test() override {
    if (is_over()) return outcome();
    if (body_->get() == nullptr) return over();
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
  if (status.is_ok())
    status = session_.attach([&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
      GroupOptions& groups = options_.groups;
      if (session_.is_elastic()) wanted.members = session_.members();
      if (groups.layout == WorkerLayout{})
        groups.layout = session_.is_elastic() ? WorkerLayout{fabric.size(), 1}
                                              : layout_of(session_.world()->communicator->hosts());
      groups.group_size = std::min(groups.group_size, std::max(session_.world()->size, 2));
      wanted.count = options_.count;
      wanted.source = options_.source;
      wanted.groups = groups;
      DUNLIN_ASSIGN(auto average, collective::GroupAverage::create(fabric, wanted));
      body_ = std::make_shared<Body>(fabric, std::move(average));
      return std::shared_ptr<Resident>(body_);
    });
  status = agree(session_, std::move(status),
                 fmt::format("making the group average '{}'", options_.name),
                 text_of(options_, number), interrupt);
  if (!status.is_ok() && body_) session_.detach(*body_);
  return status;
}

Session::Make GroupAverage::maker(std::optional<std::uint64_t> iteration, float* model) const {
  return [=, this](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto operation = std::make_shared<Average>(body_, model);
    Status status = operation->begin(iteration);
    if (!status.is_ok()) return std::move(status).with_context(fmt::format("'{}'", options_.name));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  };
}

Result<std::shared_ptr<SessionOperation>> GroupAverage::start(
    std::optional<std::uint64_t> iteration, float* model) {
  return session_.start(maker(iteration, model));
}

Status GroupAverage::run(std::optional<std::uint64_t> iteration, float* model,
                         const Session::Interrupt& interrupt,
                         std::shared_ptr<SessionOperation>* unfinished) {
  return session_.run(maker(iteration, model), session_.config().deadline, interrupt, unfinished);
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
