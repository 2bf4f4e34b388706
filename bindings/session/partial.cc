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

  // The smallest that is large enough, or a new one in place of the largest.
  Result<Memory> take(PartialAllReduce& partial, std::size_t size) {
    // Calls that were given up before their turn use their memory until that comes.
    std::erase_if(spoilt_, [&](Memory each) { return partial.free(each).is_ok(); });
    const auto found =
        std::ranges::find_if(idle_, [&](Memory each) { return each.size() >= size; });
    if (found != idle_.end()) {
      const Memory memory = *found;
      idle_.erase(found);
      return memory;
    }
    if (!idle_.empty()) {
      spoilt_.push_back(idle_.back());
      idle_.pop_back();
    }
    return partial.allocate(size);
  }
  void put_back(Memory memory) {
    if (memory.empty()) return;
    idle_.insert(std::ranges::upper_bound(idle_, memory.size(), {}, &Memory::size), memory);
  }
  // After a failed call: members that have not heard of its end yet may still write to the memory.
  void drop(Memory memory) {
    if (!memory.empty()) spoilt_.push_back(memory);
  }

 private:
  std::vector<Memory> idle_;  // by size
  std::vector<Memory> spoilt_;
};

// The calls of a name.
struct Calls {
  std::unique_ptr<PartialAllReduce> partial;
  std::uint64_t last_number = 0;
  std::deque<std::uint64_t> in_progress;  // numbers, ascending; the first one has its turn
  // Whether a call has failed: members may still have to be told, or to acknowledge it.
  bool has_failed = false;

  std::optional<int> gpu;
  // Results need not wait for inputs of later calls, whose streams may stand still.
  ModelCopies copies_in;
  ModelCopies copies_out;
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
          fmt::format(
              "partial all-reduce in {}: the first call of the name '{}' was in {}, and all "
              "calls of a name have to be alike",
              to_text(gpu), name, to_text(found->second.gpu)));
    }
    Calls made;
    made.gpu = gpu;
    collective::PartialOptions options;
    options.name = "calls/" + name;  // a different name from GroupAverage's
    options.gpu = gpu;
    DUNLIN_ASSIGN(made.copies_in, ModelCopies::create(fabric(), gpu));
    DUNLIN_ASSIGN(made.copies_out, ModelCopies::create(fabric(), gpu));
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
    call_ = what.call;
    if (call_.number == 0) call_.number = calls_->last_number + 1;
    if (what.gpu) {
      DUNLIN_TRY(copy_in(what));
    } else {
      DUNLIN_TRY(calls_->partial->start(call_).status());
    }
    is_begun_ = true;
    calls_->last_number = call_.number;
    calls_->in_progress.push_back(call_.number);
    return Status::ok();
  }
  Status test() override {
    if (is_over()) return outcome();
    if (body_->is_closed()) return closed();
    if (!outcome_) {
      Status status = advance();
      if (status.is_busy()) return status;
      outcome_ = std::move(status);
    }
    // After an error, a copy may still access the caller's memory.
    if (copied_ && copied_->is_copying(calls_->copies_in, calls_->copies_out))
      return Status::busy();
    Status status = *outcome_;
    // Ends it also after a timeout, after which other operations would continue.
    finish(status);
    return status;
  }
  // Ends the operation with `why`, unless it is over.
  void give_up(const Status& why) {
    if (!is_over()) finish(why);
  }

 protected:
  void detach() override {
    if (!std::exchange(is_begun_, false) || body_->is_closed()) return;
    if (!outcome_ && is_reducing()) (void)calls_->partial->wait(request(), Duration::zero());
    if (copied_) copied_->settle(calls_->copies_in, calls_->copies_out);
    std::erase(calls_->copying, call_.number);
    std::erase(calls_->in_progress, call_.number);
    if (outcome_ && outcome_->is_ok()) {
      calls_->buffers.put_back(buffer_);
    } else {
      calls_->has_failed = true;
      calls_->buffers.drop(buffer_);
    }
  }
  std::vector<Awaited> awaited() const override {
    if (body_->is_closed()) return {};
    return is_reducing() ? calls_->partial->awaited(request()) : awaited_copies(body_->fabric());
  }

 private:
  PartialRequest request() const { return {call_.number}; }
  bool is_reducing() const { return !copied_ || copied_->is_averaging(); }
  Status copy_in(const Call& what) {
    // Calls before this one may not have been started.
    if (call_.number <= calls_->last_number) {
      return {Code::kInvalidArgument, fmt::format("partial all-reduce {} after {}: numbers grow",
                                                  call_.number, calls_->last_number)};
    }
    DUNLIN_TRY(calls_->partial->check(call_));
    const std::size_t size = call_.count * size_of(call_.reduction.type);
    if (size > 0) {
      DUNLIN_ASSIGN(buffer_, calls_->buffers.take(*calls_->partial, size));
    }
    copied_ = CopiedAverage({call_.input, call_.output, what.input_ready, what.output_ready}, size);
    call_.input = call_.output = buffer_.data();
    Status status = copied_->begin(calls_->copies_in, buffer_.data());
    if (status.is_ok()) {
      calls_->copying.push_back(call_.number);
    } else {
      calls_->buffers.put_back(buffer_);
    }
    return status;
  }
  Status advance() {
    if (!copied_) return reduce();
    const auto start = [&]() -> Status {
      if (calls_->copying.front() != call_.number) return Status::busy();
      calls_->copying.pop_front();
      return calls_->partial->start(call_).status();
    };
    return copied_->advance(
        calls_->copies_in, calls_->copies_out, start, [&] { return reduce(); },
        [&] { return buffer_.data(); });
  }
  Status reduce() {
    Status status = calls_->partial->test(request());
    if (!status.is_busy() || !is_late()) return status;
    return calls_->partial->wait(request(), Duration::zero());  // gives it up
  }
  bool is_late() {
    if (calls_->in_progress.front() != call_.number) return false;
    const TimePoint now = body_->fabric().clock().now();
    if (!turn_began_) turn_began_ = now;
    return now - *turn_began_ >= body_->fabric().config().deadline;
  }

  std::shared_ptr<Body> body_;
  Calls* calls_ = nullptr;
  PartialCall call_;                     // as it is carried out
  std::optional<CopiedAverage> copied_;  // on a GPU
  Buffers::Memory buffer_;               // on a GPU
  bool is_begun_ = false;                // and has not ended
  std::optional<Status> outcome_;        // once it is known
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
    DUNLIN_TRY(operation->begin(session_.name_of_epoch(name), call));
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
