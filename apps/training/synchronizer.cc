#include "apps/training/synchronizer.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "apps/training/methods/pieces.h"

namespace dunlin::training {
namespace {

// How long the thread waits for anything to do before it does so again. It sleeps meanwhile; the
// length doesn't matter.
constexpr auto kIdleWait = std::chrono::hours(24);

enum class Command : std::uint8_t { kNone, kBegin, kFinish, kLeave, kServe, kEnd };

}  // namespace

// What both threads see is under the mutex; the method, and the fabric, are the thread's.
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
    send({Command::kEnd});
    thread_.join();
  }
  Status start_thread();

  struct Order {
    Command command = Command::kNone;
    std::uint64_t iteration = 0;
    float learning_rate = 0;
    bool stop = false;
  };
  // Of the computing thread: gives the order, and waits for its outcome.
  Status order(Order order);
  Status part(ModelRange range);

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
  void send(Order order);

  // Of the communication thread:
  void run();
  Order await_order();
  Status look();
  Status obey(const Order& order);
  Status start(const Order& order);
  Status await_end(Duration timeout);
  Status serve();
  std::vector<transport::Awaited> awaited_here() const;
  void answer(Status status);
  void fail(Status status);

  transport::Fabric& fabric_;
  std::unique_ptr<Method> method_;
  const Duration timeout_;
  const bool is_server_;
  const std::span<float> parameters_;
  const std::span<float> gradient_;
  const std::span<float> velocity_;
  bool is_stopped_ = false;  // written before an answer, read after it

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Order order_;                    // kNone: there is none
  std::vector<ModelRange> parts_;  // that are ready
  bool is_answered_ = false;
  Status outcome_;
  Status error_;  // stays
  MethodReport report_;

  std::vector<ModelRange> taken_;  // the thread's
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

void Synchronizer::Impl::send(Order order) {
  {
    const std::lock_guard lock(mutex_);
    order_ = order;
    is_answered_ = false;
  }
  // The thread sleeps in the fabric, or after an error on the condition.
  changed_.notify_all();
  fabric_.wake();
}

Status Synchronizer::Impl::order(Order order) {
  send(order);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_answered_; });
  return std::exchange(outcome_, Status::ok());
}

Status Synchronizer::Impl::part(ModelRange range) {
  DUNLIN_TRY(check_range(range, gradient_.size()));
  {
    const std::lock_guard lock(mutex_);
    if (error_.is_error()) return error_;
    parts_.push_back(range);
  }
  fabric_.wake();
  return Status::ok();
}

void Synchronizer::Impl::answer(Status status) {
  const std::lock_guard lock(mutex_);
  outcome_ = std::move(status);
  report_ = method_->report();
  is_answered_ = true;
  changed_.notify_all();
}

void Synchronizer::Impl::fail(Status status) {
  const std::lock_guard lock(mutex_);
  if (!error_.is_error()) error_ = std::move(status);
}

// Busy until there is an order; an error of the method's.
Status Synchronizer::Impl::look() {
  bool has_order = false;
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(parts_);
    has_order = order_.command != Command::kNone;
  }
  for (const ModelRange part : taken_) DUNLIN_TRY(method_->ready(part.first, part.count));
  taken_.clear();
  // A server's is busy all the time, others' only between the steps of a call.
  if (Status status = method_->test(); status.is_error()) return status;
  return has_order ? Status::ok() : Status::busy();
}

Synchronizer::Impl::Order Synchronizer::Impl::await_order() {
  bool has_failed = false;
  {
    const std::lock_guard lock(mutex_);
    has_failed = error_.is_error();
  }
  while (!has_failed) {
    const auto nobody = [] { return std::vector<transport::Awaited>(); };
    Status status = fabric_.wait([this] { return look(); }, nobody, kIdleWait);
    if (status.is_ok()) break;
    if (status.code() == Code::kDeadlineExceeded && !method_->test().is_error()) continue;
    fail(std::move(status));
    has_failed = true;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return order_.command != Command::kNone; });
  return std::exchange(order_, Order());
}

void Synchronizer::Impl::run() {
  for (Order order = await_order(); order.command != Command::kEnd; order = await_order()) {
    Status status;
    {
      const std::lock_guard lock(mutex_);
      status = error_;
    }
    if (!status.is_error()) status = obey(order);
    answer(std::move(status));
  }
}

Status Synchronizer::Impl::start(const Order& order) {
  switch (order.command) {
    case Command::kBegin:
      return method_->begin(order.iteration);
    case Command::kFinish:
      return method_->finish(order.learning_rate, order.stop);
    case Command::kLeave:
      return method_->leave();
    case Command::kServe:
    case Command::kNone:
    case Command::kEnd:
      break;
  }
  return Status::ok();
}

Status Synchronizer::Impl::obey(const Order& order) {
  // A mistake in the order of calls is told, and changes nothing.
  if (Status status = start(order); status.is_error()) {
    if (status.code() != Code::kInvalidArgument) fail(status);
    return status;
  }
  Status status = order.command == Command::kServe ? serve() : await_end(timeout_);
  is_stopped_ = method_->stopped();
  if (status.is_error()) fail(status);
  return status;
}

// Who is gone is the method's affair, which may go on without him or know a better reason than that
// he has left: the fabric is told of those only who are there.
std::vector<transport::Awaited> Synchronizer::Impl::awaited_here() const {
  std::vector<transport::Awaited> awaited = method_->awaited();
  std::erase_if(awaited, [this](const transport::Awaited& wait) {
    return !fabric_.peers().is_present(wait.peer);
  });
  return awaited;
}

Status Synchronizer::Impl::await_end(Duration timeout) {
  const TimePoint deadline = fabric_.clock().now() + timeout;
  for (;;) {
    Status status =
        fabric_.wait([this] { return method_->test(); }, [this] { return awaited_here(); },
                     deadline - fabric_.clock().now());
    if (status.code() != Code::kPeerDead) return status;
    // Gone within a moment, maybe: what the method says of it counts.
    if (Status own = method_->test(); own.is_error()) return own;
  }
}

// For as long as anything happens within `timeout`.
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
  if (!is_server()) return {Code::kInvalidArgument, "serve() of a worker"};
  return impl_->order({Command::kServe});
}

Status Synchronizer::begin(std::uint64_t iteration) {
  return impl_->order({Command::kBegin, iteration});
}

Status Synchronizer::ready(std::size_t first, std::size_t count) {
  return impl_->part({first, count});
}

Result<bool> Synchronizer::finish(float learning_rate, bool stop) {
  DUNLIN_TRY(impl_->order({Command::kFinish, 0, learning_rate, stop}));
  return impl_->is_stopped();
}

Status Synchronizer::leave() {
  return impl_->order({Command::kLeave});
}

}  // namespace dunlin::training
