#include "bindings/c10d/group.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bindings/c10d/calls.h"

namespace dunlin::torch_backend {

using c10d::OpType;
using collective::Call;
using collective::Collective;
using collective::Missed;

namespace {

// The ranks of a program destroy their default group at about the same time. Longer than that, and
// too short to matter to one whose first rank destroys it later.
constexpr Duration kServerTimeout = std::chrono::seconds(1);

KeyValueStore wrap(const Handle<c10d::Store>& store) {
  KeyValueStore wrapped;
  wrapped.set = [store](const std::string& key, const std::string& value) {
    store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
  };
  wrapped.get = [store](const std::string& key) {
    const std::vector<uint8_t> value = store->get(key);
    return std::string(value.begin(), value.end());
  };
  wrapped.has = [store](const std::string& key) { return store->check({key}); };
  wrapped.timeout = limited(store->getTimeout());
  wrapped.add = [store](const std::string& key, std::int64_t value) {
    return store->add(key, value);
  };
  return wrapped;
}

}  // namespace

Handle<Group> Group::create(const Handle<c10d::Store>& store, int rank, int size,
                            Milliseconds timeout, bool store_ends_with_it) {
  KeyValueStore wrapped = wrap(store);
  Interruption interruption;
  wrapped.interrupt = interruption.interrupt();
  auto member = Member::meet(std::move(wrapped), {rank, size});
  interruption.rethrow();
  if (!member) raise(member.status());
  StoreServer server(store_ends_with_it ? store : Handle<c10d::Store>(), rank);
  return c10::make_intrusive<Group>(*std::move(member), rank, size, timeout, std::move(server));
}

Group::Group(std::shared_ptr<Member> member, int rank, int size, Milliseconds timeout,
             StoreServer server)
    : TorchBackend(rank, size),
      member_(std::move(member)),
      server_(std::move(server)),
      timeout_(limited(timeout)) {}

Group::~Group() {
  // A forked child does not wait, and neither does the end of the program.
  if (!member_->check_process().is_ok() || member_->engine().finisher->is_stopped()) return;
  wait_without_python([this] { server_.await_end(kServerTimeout); });
}

// Starts the operations of the plan. If one fails to start, those before it continue, as other
// ranks rely on them.
Group::Receipts Group::launch(const Plan& plan, const std::shared_ptr<GpuEvent>& ready, Task& task,
                              const binding::Session::Interrupt& interrupt) {
  const Engine& engine = member_->engine();
  Receipts receipts;
  const auto add = [&](Result<std::shared_ptr<binding::SessionOperation>> operation) {
    if (operation) {
      task.add(*std::move(operation));
    } else {
      task.fail_start(operation.status());
    }
    return operation.is_ok();
  };
  for (const Call& call : plan.calls) {
    if (plan.gpu) {
      if (!add(plan.gpu->start({call, ready, ready}, task.expect()))) return receipts;
      continue;
    }
    // It may wait for room among outstanding operations.
    if (!add(engine.session->start(member_->communicator(), call, interrupt, task.expect(),
                                   task.time_left())))
      return receipts;
  }
  for (const Message& message : plan.messages) {
    if (message.is_sent) {
      const Rank peer = member_->rank_in_job(message.peer);
      const std::span data(static_cast<const std::byte*>(message.data.data_ptr()),
                           bytes(message.data));
      if (!add(engine.messages->send(peer, plan.topic, data, task.expect()))) return receipts;
      continue;
    }
    std::vector<Rank> sources;
    for (int rank = 0; rank < getSize(); ++rank) {
      const bool is_source = message.peer == kAnyPeer ? rank != getRank() : rank == message.peer;
      if (is_source) sources.push_back(member_->rank_in_job(rank));
    }
    // The messages of a collective call belong to it, also if this rank has given it up.
    const auto missed = plan.type == OpType::RECV ? Missed::kNextGather : Missed::kDropped;
    auto receipt = message.peer == kAnyPeer
                       ? engine.messages->receive_any(sources, plan.topic, task.expect())
                       : engine.messages->receive(sources[0], plan.topic, missed, task.expect());
    if (!receipt) {
      task.fail_start(receipt.status());
      return receipts;
    }
    (void)add(receipt->operation);
    receipts.emplace_back(message, receipt->result);
  }
  return receipts;
}

// Copies the received data to their tensors, and returns the sender of the last message.
int Group::deliver(const Member& member, const Receipts& receipts, const char* title) {
  int source = -1;
  for (const auto& [message, receipt] : receipts) {
    source = member.rank_in_group(receipt->sources().front());
    Bytes data =
        std::move(receipt->parts().front());  // so that it doesn't live as long as the work
    if (message.raw) {
      *message.raw = std::move(data);
      continue;
    }
    TORCH_CHECK(data.size() == bytes(message.data), title, ": rank ", source, " has sent ",
                data.size(), " bytes, but ", bytes(message.data), " were expected");
    if (!data.empty()) std::memcpy(message.data.data_ptr(), data.data(), data.size());
  }
  return source;
}

void Group::check_open() const {
  if (Status status = member_->check_process(); !status.is_ok()) raise(status);
  if (member_->engine().finisher->is_stopped())
    raise({Code::kClosed, "this process has left the job"});
  if (is_closed_) raise({Code::kClosed, "the group was shut down"});
}

Group::Pending Group::start(Plan plan, Milliseconds timeout) {
  check_open();
  const std::shared_ptr<GpuEvent> ready = work_before(plan.gpu);
  calls_.fetch_add(1);
  // Everything that the operations use lives until they are over, also this process's membership.
  struct Memory {
    std::shared_ptr<Member> member;
    Tensors inputs;
    Tensors outputs;
    Tensors held;
    Staging staging;
  };
  auto memory =
      std::make_shared<Memory>(Memory{member_, plan.inputs, plan.outputs, plan.held, plan.staging});
  timeout = limited(timeout);
  const Milliseconds limit = timeout.count() > 0 ? timeout : timeout_.load();
  auto task = std::make_shared<Task>(member_->engine().session, member_->engine().finisher, limit,
                                     std::move(memory), member_.get());
  Interruption interruption;
  Receipts receipts = launch(plan, ready, *task, interruption.interrupt());
  std::function<void()> finish = std::move(plan.finish);
  std::shared_ptr<int> source;
  if (!receipts.empty()) {
    if (plan.type == OpType::RECVANYSOURCE) source = std::make_shared<int>(-1);
    finish = [member = member_, receipts = std::move(receipts), title = plan.title, source,
              after = std::move(finish)] {
      const int last = deliver(*member, receipts, title);
      if (source) *source = last;
      if (after) after();
    };
  }
  if (plan.staging.has_results()) {
    finish = [before = std::move(finish), staging = std::move(plan.staging)] {
      if (before) before();
      staging.copy_back();
    };
  }
  // PyTorch's profiler shows their shapes: those of a receive are its outputs', as with gloo.
  const bool receives = plan.type == OpType::RECV || plan.type == OpType::RECVANYSOURCE;
  auto work = c10::make_intrusive<Work>(getRank(), plan.type, plan.title,
                                        receives ? plan.outputs : plan.inputs, plan.outputs,
                                        std::move(finish), source);
  Work::start(work, std::move(task));
  interruption.rethrow();
  const std::lock_guard guard(coalescing_mutex_);
  if (coalesced_) coalesced_->push_back(work);
  return work;
}

#if DUNLIN_TORCH_COALESCES
void Group::startCoalescing() {
  const std::lock_guard guard(coalescing_mutex_);
  // PyTorch does not end what an exception has cut short. Its operations go on by themselves.
  coalesced_.emplace();
}

Group::Pending Group::endCoalescing() {
  const std::lock_guard guard(coalescing_mutex_);
  TORCH_CHECK(coalesced_, "dunlin: endCoalescing() was called without startCoalescing()");
  auto joined = c10::make_intrusive<JoinedWork>(getRank(), std::move(*coalesced_));
  coalesced_.reset();
  return joined;
}
#endif

void Group::abort() {
  // A forked child has none of the threads. The group stays usable in the parent.
  if (!member_->check_process().is_ok()) return;
  is_closed_ = true;
  member_->engine().finisher->abort(member_.get(), {Code::kClosed, "the group was aborted"});
}

#if TORCH_VERSION_MAJOR >= 2
Handle<c10d::Backend::Options> Group::getBackendOptions() {
  return c10::make_intrusive<c10d::Backend::Options>("dunlin", timeout_.load());
}

Handle<c10d::Backend> Group::split(const Handle<c10d::Store>& store, const std::vector<int>& ranks,
                                   const Handle<c10d::Backend::Options>& options) {
  const auto own = std::ranges::find(ranks, getRank());
  if (own == ranks.end()) return nullptr;
  return create(store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
                options ? options->timeout : timeout_.load());
}
#endif

void Group::check_root(int64_t root, const char* title) const {
  TORCH_CHECK(root >= 0 && root < getSize(), title, ": root ", root, " in a group of ", getSize());
}

Group::Pending Group::send(Tensors& tensors, int rank, int tag) {
  constexpr const char* kTitle = "dunlin:send";
  const Tensor& tensor = only(tensors, kTitle);
  check_root(rank, kTitle);
  TORCH_CHECK(rank != getRank(), kTitle, ": a rank can't send to itself");
  Plan plan{.type = OpType::SEND, .title = kTitle, .inputs = tensors};
  plan.messages = {{rank, plan.staging.in(tensor), true}};
  plan.topic = fmt::format("{}/tag/{}", member_->name(), tag);
  return start(std::move(plan), c10d::kUnsetTimeout);
}

Group::Pending Group::recv(Tensors& tensors, int rank, int tag) {
  constexpr const char* kTitle = "dunlin:recv";
  const Tensor& tensor = only(tensors, kTitle);
  check_root(rank, kTitle);
  TORCH_CHECK(rank != getRank(), kTitle, ": a rank can't receive from itself");
  Plan plan{.type = OpType::RECV, .title = kTitle, .outputs = tensors};
  plan.messages = {{rank, plan.staging.out(tensor), false}};
  plan.topic = fmt::format("{}/tag/{}", member_->name(), tag);
  return start(std::move(plan), c10d::kUnsetTimeout);
}

Group::Pending Group::recvAnysource(Tensors& tensors, int tag) {
  constexpr const char* kTitle = "dunlin:recvAnySource";
  const Tensor& tensor = only(tensors, kTitle);
  TORCH_CHECK(getSize() > 1, kTitle, ": the group has no other rank");
  Plan plan{.type = OpType::RECVANYSOURCE, .title = kTitle, .outputs = tensors};
  plan.messages = {{kAnyPeer, plan.staging.out(tensor), false}};
  plan.topic = fmt::format("{}/tag/{}", member_->name(), tag);
  return start(std::move(plan), c10d::kUnsetTimeout);
}

}  // namespace dunlin::torch_backend
