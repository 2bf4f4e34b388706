#include "collectives/training/synchronizer.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/training/methods/pieces.h"
#include "collectives/waiting/rounds.h"

namespace dunlin::training {
namespace {

// How long the thread sleeps at most before it waits again for something to do. Any long time
// suits.
constexpr auto kIdleWait = std::chrono::hours(24);

enum class CommandKind : std::uint8_t { kNone, kBegin, kFinish, kLeave, kServe, kCall, kEnd };

}  // namespace

// The mutex protects what both threads access. Only the communication thread uses the method and
// the fabric.
class Synchronizer::Impl {
 public:
  Impl(transport::Fabric& fabric, std::unique_ptr<Method> method, Duration timeout)
      : fabric_(fabric),
        method_(std::move(method)),
        timeout_(timeout),
        is_server_(method_->is_server()),
        parameters_(method_->parameters()),
        gradient_(method_->gradient()),
        velocity_(method_->velocity()) {}
  ~Impl() {
    if (!thread_.joinable()) return;
    send({CommandKind::kEnd});
    thread_.join();
  }
  Status start_thread();

  struct Command {
    CommandKind kind = CommandKind::kNone;
    std::uint64_t iteration = 0;
    float learning_rate = 0;
    bool stop = false;
    const std::function<Status(transport::Fabric&)>* job = nullptr;  // of kCall
  };
  // The computing thread calls execute() and add_part(). execute() sends a command to the
  // communication thread and waits for its outcome.
  Status execute(Command command);
  Status add_part(ModelRange range);

  bool is_server() const { return is_server_; }
  std::span<float> parameters() const { return parameters_; }
  std::span<float> gradient() const { return gradient_; }
  std::span<float> velocity() const { return velocity_; }
  bool is_stopped() const { return is_stopped_; }
  MethodReport report() const {
    const std::lock_guard lock(mutex_);
    return report_;
  }

 private:
  void send(Command command);

  // The communication thread calls these:
  void run();
  Command await_command();
  Status poll();
  Status carry_out(const Command& command);
  Status start(const Command& command);
  Status await_end(Duration timeout);
  Status serve();
  std::vector<transport::Awaited> awaited_present() const;
  void report_outcome(Status status);
  void fail(Status status);

  transport::Fabric& fabric_;
  std::unique_ptr<Method> method_;
  const Duration timeout_;
  const bool is_server_;
  const std::span<float> parameters_;
  const std::span<float> gradient_;
  const std::span<float> velocity_;
  bool is_stopped_ = false;  // written before an outcome is reported, read after that

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Command command_;                // kNone: none is due
  std::vector<ModelRange> parts_;  // the parts of the gradient that are ready
  bool has_outcome_ = false;
  Status outcome_;
  Status error_;  // the first one
  MethodReport report_;

  std::vector<ModelRange> taken_;  // the communication thread's copy of parts_
  std::thread thread_;
};

Status Synchronizer::Impl::start_thread() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return Status::from_errno("starting the communication thread", error.code().value());
  }
  return Status::ok();
}

void Synchronizer::Impl::send(Command command) {
  {
    const std::lock_guard lock(mutex_);
    command_ = command;
    has_outcome_ = false;
  }
  // The thread sleeps in the fabric or, after an error, on the condition variable.
  changed_.notify_all();
  fabric_.wake();
}

Status Synchronizer::Impl::execute(Command command) {
  send(command);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_outcome_; });
  return std::exchange(outcome_, Status::ok());
}

Status Synchronizer::Impl::add_part(ModelRange range) {
  DUNLIN_TRY(check_range(range, gradient_.size()));
  {
    const std::lock_guard lock(mutex_);
    if (error_.is_error()) return error_;
    parts_.push_back(range);
  }
  fabric_.wake();
  return Status::ok();
}

void Synchronizer::Impl::report_outcome(Status status) {
  const std::lock_guard lock(mutex_);
  outcome_ = std::move(status);
  report_ = method_->report();
  has_outcome_ = true;
  changed_.notify_all();
}

void Synchronizer::Impl::fail(Status status) {
  const std::lock_guard lock(mutex_);
  if (!error_.is_error()) error_ = std::move(status);
}

// Returns kBusy until a command is due, or the method's error.
Status Synchronizer::Impl::poll() {
  bool has_command = false;
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(parts_);
    has_command = command_.kind != CommandKind::kNone;
  }
  for (const ModelRange part : taken_) DUNLIN_TRY(method_->ready(part.first, part.count));
  taken_.clear();
  // A server's test() always returns kBusy, a worker's only during a phase.
  if (Status status = method_->test(); status.is_error()) return status;
  return has_command ? Status::ok() : Status::busy();
}

Synchronizer::Impl::Command Synchronizer::Impl::await_command() {
  bool has_failed = false;
  {
    const std::lock_guard lock(mutex_);
    has_failed = error_.is_error();
  }
  while (!has_failed) {
    const auto none = [] { return std::vector<transport::Awaited>(); };
    Status status = fabric_.wait([this] { return poll(); }, none, kIdleWait);
    if (status.is_ok()) break;
    if (status.code() == Code::kDeadlineExceeded && !method_->test().is_error()) continue;
    fail(std::move(status));
    has_failed = true;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return command_.kind != CommandKind::kNone; });
  return std::exchange(command_, Command());
}

void Synchronizer::Impl::run() {
  for (Command command = await_command(); command.kind != CommandKind::kEnd;
       command = await_command()) {
    Status status;
    {
      const std::lock_guard lock(mutex_);
      status = error_;
    }
    if (!status.is_error()) status = carry_out(command);
    report_outcome(std::move(status));
  }
}

Status Synchronizer::Impl::start(const Command& command) {
  switch (command.kind) {
    case CommandKind::kBegin:
      return method_->begin(command.iteration);
    case CommandKind::kFinish:
      return method_->finish(command.learning_rate, command.stop);
    case CommandKind::kLeave:
      return method_->leave();
    case CommandKind::kServe:
    case CommandKind::kCall:
    case CommandKind::kNone:
    case CommandKind::kEnd:
      break;
  }
  return Status::ok();
}

Status Synchronizer::Impl::carry_out(const Command& command) {
  if (command.kind == CommandKind::kCall) return (*command.job)(fabric_);
  // A call at the wrong time returns an error and changes nothing.
  if (Status status = start(command); status.is_error()) {
    if (status.code() != Code::kInvalidArgument) fail(status);
    return status;
  }
  Status status = command.kind == CommandKind::kServe ? serve() : await_end(timeout_);
  is_stopped_ = method_->stopped();
  if (status.is_error()) fail(status);
  return status;
}

// Leaves out peers that are gone, so that the fabric does not report them. The method handles them:
// it may continue without them, or know a better reason for their absence.
std::vector<transport::Awaited> Synchronizer::Impl::awaited_present() const {
  std::vector<transport::Awaited> awaited = method_->awaited();
  std::erase_if(awaited, [this](const transport::Awaited& wait) {
    return !fabric_.peers().is_present(wait.peer);
  });
  return awaited;
}

Status Synchronizer::Impl::await_end(Duration timeout) {
  const TimePoint deadline = fabric_.clock().now() + timeout;
  for (;;) {
    Status status = collective::wait_in_rounds(
        fabric_, [this] { return method_->test(); },
        transport::Awaiting{[this] { return awaited_present(); },
                            [this] { return method_->blocker(); }},
        deadline, [this] { return method_->next_event(); });
    if (status.code() != Code::kPeerDead) return status;
    // The peer may have left just now. The method's judgment counts.
    if (Status own = method_->test(); own.is_error()) return own;
  }
}

// Continues as long as a step happens within each `timeout`.
Status Synchronizer::Impl::serve() {
  for (;;) {
    const std::uint64_t before = method_->report().synchronizations;
    Status status = await_end(timeout_);
    const bool is_late =
        status.code() == Code::kDeadlineExceeded || status.code() == Code::kPeerStalled;
    if (!is_late || method_->report().synchronizations == before) return status;
  }
}

Synchronizer::Synchronizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Synchronizer::~Synchronizer() = default;

Result<std::unique_ptr<Synchronizer>> Synchronizer::create(transport::Fabric& fabric,
                                                           const MethodOptions& options,
                                                           Duration timeout) {
  DUNLIN_ASSIGN(auto method, make_method(fabric, options));
  auto impl = std::make_unique<Impl>(fabric, std::move(method), timeout);
  DUNLIN_TRY(impl->start_thread());
  return std::unique_ptr<Synchronizer>(new Synchronizer(std::move(impl)));
}

bool Synchronizer::is_server() const {
  return impl_->is_server();
}
std::span<float> Synchronizer::parameters() {
  return impl_->parameters();
}
std::span<float> Synchronizer::gradient() {
  return impl_->gradient();
}
std::span<float> Synchronizer::velocity() {
  return impl_->velocity();
}
MethodReport Synchronizer::report() const {
  return impl_->report();
}

Status Synchronizer::serve() {
  if (!is_server()) return {Code::kInvalidArgument, "a worker called serve()"};
  return impl_->execute({CommandKind::kServe});
}

Status Synchronizer::begin(std::uint64_t iteration) {
  return impl_->execute({CommandKind::kBegin, iteration});
}

Status Synchronizer::ready(std::size_t first, std::size_t count) {
  return impl_->add_part({first, count});
}

Result<bool> Synchronizer::finish(float learning_rate, bool stop) {
  DUNLIN_TRY(impl_->execute({CommandKind::kFinish, 0, learning_rate, stop}));
  return impl_->is_stopped();
}

Status Synchronizer::leave() {
  return impl_->execute({CommandKind::kLeave});
}

Status Synchronizer::call(const std::function<Status(transport::Fabric&)>& job) {
  return impl_->execute({.kind = CommandKind::kCall, .job = &job});
}

}  // namespace dunlin::training
