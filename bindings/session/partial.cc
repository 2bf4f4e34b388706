#include "bindings/session/partial.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace dunlin::binding {

using collective::PartialAllReduce;
using collective::PartialCall;
using collective::PartialRequest;
using collective::size_of;
using transport::Awaited;
using transport::Fabric;

namespace {

// Operations end by themselves at the deadline. A wait for an operation lasts this much longer.
constexpr Duration kBeyondDeadline = std::chrono::seconds(5);

// The memory on a GPU in which calls of a name are carried out.
class Buffers {
 public:
  using Memory = std::span<std::byte>;

  Result<Memory> take(PartialAllReduce& partial, std::size_t size) {
    const auto fits = [&](const Memory& each) { return each.size() >= size; };
    const auto found = std::ranges::find_if(idle_, fits);
    if (found != idle_.end()) {
      const Memory memory = *found;
      idle_.erase(found);
      return memory;
    }
    // Calls have become longer.
    for (const Memory& each : idle_) (void)partial.free(each);
    idle_.clear();
    return partial.allocate(size);
  }
  void put_back(Memory memory) { idle_.push_back(memory); }

 private:
  std::vector<Memory> idle_;
};

// The calls of a name.
struct Calls {
  std::unique_ptr<PartialAllReduce> partial;
  std::uint64_t last_number = 0;
  std::deque<std::uint64_t> in_progress;  // numbers, ascending; the first one has its turn
  // Whether a call has failed: members may still have to be told, or to acknowledge it.
  bool has_failed = false;

  std::optional<int> gpu;
  ModelCopies copies;
  Buffers buffers;
  std::deque<std::uint64_t> copying;  // numbers, ascending: inputs that are being copied
};

std::string to_text(std::optional<int> gpu) {
  return gpu ? fmt::format("the memory of GPU {}", *gpu) : "host memory";
}

}  // namespace

class PartialReduces::Body final : public Resident {
 public:
  using Resident::Resident;

  void progress() override {
    // After operations that have all succeeded, answers to peers can wait for the next call.
    for (auto& [name, calls] : calls_) {
      if (!calls.in_progress.empty() || calls.has_failed) calls.partial->progress();
    }
  }
  bool is_served() const override {
    return std::ranges::any_of(calls_, [](const auto& each) { return each.second.has_failed; });
  }
  bool outlasts_members() const override { return true; }
  void close() override {
    is_closed_ = true;
    calls_.clear();
  }
  bool is_closed() const { return is_closed_; }

  // The result stays valid until close().
  Result<Calls*> calls_of(const std::string& name, std::optional<int> gpu) {
    const auto found = calls_.find(name);
    if (found != calls_.end()) {
      if (found->second.gpu == gpu) return &found->second;
      return Status(
          Code::kInvalidArgument,
          fmt::format("partial all-reduce in {}: the first call of the name '{}' was in {}, and all "
                      "calls of a name have to be alike",
                      to_text(gpu), name, to_text(found->second.gpu)));
    }
    Calls made;
    made.gpu = gpu;
    collective::PartialOptions options;
    options.name = "calls/" + name;  // a different name from GroupAverage's
    options.gpu = gpu;
    DUNLIN_ASSIGN(made.copies, ModelCopies::create(fabric(), gpu));
    DUNLIN_ASSIGN(made.partial, PartialAllReduce::create(fabric(), options));
    return &calls_.emplace(name, std::move(made)).first->second;
  }

 private:
  std::map<std::string, Calls> calls_;
  bool is_closed_ = false;
};

class PartialReduces::Reduce final : public ResidentOperation {
 public:
  explicit Reduce(std::shared_ptr<Body> body) : ResidentOperation(body), body_(std::move(body)) {}

  Status begin(const std::string& name, const Call& what) {
    if (body_->is_closed()) return closed();
    DUNLIN_ASSIGN(calls_, body_->calls_of(name, what.gpu));
    what_ = what;
    PartialCall& call = what_.call;
    if (call.number == 0) call.number = calls_->last_number + 1;
    if (what.gpu) {
      DUNLIN_TRY(copy_in());
    } else {
      DUNLIN_TRY(calls_->partial->start(call).status());
    }
    is_begun_ = true;
    calls_->last_number = call.number;
    calls_->in_progress.push_back(call.number);
    return Status::ok();
  }
  Status test() override {
    if (is_over()) return outcome();
    if (body_->is_closed()) return closed();
    Status status = advance();
    if (!status.is_busy()) end(status);
    return status;
  }
  // Ends the operation with `why`, unless it is over.
  void give_up(const Status& why) {
    if (is_over()) return;
    if (!body_->is_closed() && stage_ == Stage::kReducing)
      (void)calls_->partial->wait(request(), Duration::zero());
    end(why);
  }

 protected:
  void detach() override {
    if (std::exchange(is_begun_, false) && !body_->is_closed()) calls_->copies.settle();
  }
  std::vector<Awaited> awaited() const override {
    if (body_->is_closed()) return {};
    if (stage_ == Stage::kReducing) return calls_->partial->awaited(request());
    return {{body_->fabric().rank(), "copies on its GPU"}};
  }

 private:
  enum class Stage : std::uint8_t { kCopyingIn, kReducing, kCopyingOut };

  PartialRequest request() const { return {what_.call.number}; }
  std::size_t size() const { return what_.call.count * size_of(what_.call.reduction.type); }
  // The call that is carried out in the buffer.
  PartialCall call_in_buffer() const {
    PartialCall call = what_.call;
    call.input = call.output = buffer_.data();
    return call;
  }
  Status copy_in() {
    // Calls before this one may not have been started.
    if (what_.call.number <= calls_->last_number) {
      return {Code::kInvalidArgument, fmt::format("partial all-reduce {} after {}: numbers grow",
                                                  what_.call.number, calls_->last_number)};
    }
    if (size() > 0) {
      DUNLIN_ASSIGN(buffer_, calls_->buffers.take(*calls_->partial, size()));
    }
    Status status = calls_->partial->check(call_in_buffer());
    if (status.is_ok()) {
      status = calls_->copies.start(buffer_.data(), what_.call.input, size(),
                                    what_.input_ready.get());
    }
    if (!status.is_ok()) {
      if (!buffer_.empty()) calls_->buffers.put_back(buffer_);
      return status;
    }
    copy_ = calls_->copies.started();
    calls_->copying.push_back(what_.call.number);
    stage_ = Stage::kCopyingIn;
    return status;
  }
  Status advance() {
    if (stage_ == Stage::kCopyingIn) {
      if (calls_->copying.front() != what_.call.number) return Status::busy();
      DUNLIN_TRY(calls_->copies.test(copy_));
      calls_->copying.pop_front();
      DUNLIN_TRY(calls_->partial->start(call_in_buffer()).status());
      stage_ = Stage::kReducing;
    }
    if (stage_ == Stage::kReducing) {
      Status status = calls_->partial->test(request());
      if (status.is_busy() && is_late())
        status = calls_->partial->wait(request(), Duration::zero());  // gives it up
      if (!status.is_ok() || buffer_.empty()) return status;
      DUNLIN_TRY(calls_->copies.start(what_.call.output, buffer_.data(), size(),
                                      what_.output_ready.get()));
      copy_ = calls_->copies.started();
      stage_ = Stage::kCopyingOut;
    }
    return calls_->copies.test(copy_);
  }
  void end(const Status& status) {
    is_begun_ = false;
    if (!body_->is_closed()) {
      if (status.is_error()) calls_->copies.settle();
      std::erase(calls_->copying, what_.call.number);
      std::erase(calls_->in_progress, what_.call.number);
      calls_->has_failed = calls_->has_failed || status.is_error();
      if (!buffer_.empty()) {
        if (status.is_ok()) {
          calls_->buffers.put_back(buffer_);
        } else {
          // Members that have not heard of the end yet may still write to it.
          (void)calls_->partial->free(buffer_);
        }
      }
    }
    // Ends it also after a timeout, after which other operations would continue.
    finish(status);
  }
  bool is_late() {
    if (calls_->in_progress.front() != what_.call.number) return false;
    const TimePoint now = body_->fabric().clock().now();
    if (!turn_began_) turn_began_ = now;
    return now - *turn_began_ >= body_->fabric().config().deadline;
  }

  std::shared_ptr<Body> body_;
  Calls* calls_ = nullptr;
  Call what_;
  bool is_begun_ = false;  // and has not ended
  Stage stage_ = Stage::kReducing;
  Buffers::Memory buffer_;  // on a GPU
  std::uint64_t copy_ = 0;  // the number of the last copy
  std::optional<TimePoint> turn_began_;
};

Result<std::shared_ptr<PartialReduces>> PartialReduces::create(Session& session) {
  std::shared_ptr<Body> made;
  DUNLIN_TRY(session.attach([&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
    made = std::make_shared<Body>(fabric);
    return std::shared_ptr<Resident>(made);
  }));
  return std::shared_ptr<PartialReduces>(new PartialReduces(session, std::move(made)));
}

Session::Make PartialReduces::maker(const std::string& name, const Call& call) const {
  return [&, this](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto operation = std::make_shared<Reduce>(body_);
    DUNLIN_TRY(operation->begin(name, call));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  };
}

Result<std::shared_ptr<SessionOperation>> PartialReduces::start(const std::string& name,
                                                                const Call& call) {
  return session_.start(maker(name, call));
}

Status PartialReduces::run(const std::string& name, const Call& call,
                           const Session::Interrupt& interrupt,
                           std::shared_ptr<SessionOperation>* unfinished) {
  std::shared_ptr<SessionOperation> left;
  Status status = session_.run(maker(name, call), session_.config().deadline + kBeyondDeadline,
                               interrupt, &left);
  if (!left) return status;
  if (unfinished != nullptr) {
    *unfinished = std::move(left);
    return status;
  }
  // Does nothing after shutdown(), which has ended the operation.
  (void)session_.with_fabric([&](Fabric&) {
    static_cast<Reduce&>(*left).give_up(status);
    return Status::ok();
  });
  // It may have ended in the meantime with an outcome of its own.
  return left->is_over() ? left->outcome() : status;
}

}  // namespace dunlin::binding
