#include "collectives/neighbor/neighbor_exchange.h"

#include <fmt/format.h>

#include <utility>

#include "collectives/neighbor/router.h"
#include "runtime/trace.h"
#include "runtime/within.h"

namespace dunlin::collective {

using neighbor::Delivery;
using neighbor::Intake;
using neighbor::NeighborOperation;

namespace {

constexpr std::size_t kSmallestSlot = 4096;
constexpr std::size_t kHostSlot = std::size_t{128} << 10;  // stays in the caches
// A copy of so many bytes takes a GPU as long as its launch takes the host.
constexpr std::size_t kGpuSlot = std::size_t{4} << 20;

}  // namespace

class NeighborExchange::Impl {
 public:
  Impl(transport::Fabric& fabric, NeighborOptions options, std::size_t slot_bytes,
       std::unique_ptr<neighbor::GpuWork> gpu)
      : fabric_(fabric),
        gpu_(gpu.get()),
        router_(fabric, {std::move(options.name), slot_bytes, options.depth,
                         options.fusion_threshold.value_or(
                             static_cast<std::size_t>(fabric.config().fusion_threshold)),
                         std::move(gpu)}),
        task_(fabric, [this] {
          // Calls that no thread waits for advance, too, while this process waits for something
          // else. Neighbors that need an answer get it, also if this rank makes no call again.
          if (!is_inside_ && router_.needs_progress()) progress();
        }) {}

  Result<NeighborRequest> start(const NeighborCall& call, std::vector<Bytes>* gathered);
  Status outcome(NeighborRequest request);
  Status test(NeighborRequest request) {
    progress();
    return outcome(request);
  }
  void progress() {
    const Within inside(is_inside_);
    router_.progress();
  }
  Status wait(NeighborRequest request, Duration timeout);
  void give_up(NeighborRequest request, Missed missed);
  std::vector<transport::Awaited> awaited(NeighborRequest request);
  Rank blocker(NeighborRequest request);
  neighbor::Router& router() { return router_; }
  Duration deadline() const { return fabric_.config().deadline; }

 private:
  NeighborCall without_gone(NeighborCall call) const;
  Result<NeighborRequest> begin(const NeighborCall& call, std::vector<Bytes>* gathered);

  transport::Fabric& fabric_;
  neighbor::GpuWork* gpu_;  // the router's; null: host memory
  neighbor::Router router_;
  bool is_inside_ = false;  // in a call of the router, which a task must not enter again
  transport::Fabric::Task task_;
};

Result<NeighborRequest> NeighborExchange::Impl::start(const NeighborCall& call,
                                                      std::vector<Bytes>* gathered) {
  DUNLIN_TRY(neighbor::check(call, gathered == nullptr, fabric_.rank(), fabric_.size()));
  const bool goes_on = gathered == nullptr && call.on_death != OnDeath::kFail;
  if (goes_on && fabric_.peers().is_anybody_gone()) {
    const NeighborCall reduced = without_gone(call);
    return begin(reduced, gathered);
  }
  return begin(call, gathered);
}

// Leaves out destinations that are gone, and sources that are gone and were never met. What another
// source has sent before its end counts.
NeighborCall NeighborExchange::Impl::without_gone(NeighborCall call) const {
  const auto is_gone = [&](Rank rank) { return fabric_.peers().state(rank) > PeerState::kAbsent; };
  std::erase_if(call.sources, [&](const WeightedRank& from) {
    const bool is_lost = is_gone(from.rank) && !router_.has_met(from.rank);
    if (is_lost && call.on_death == OnDeath::kOwnData) call.self_weight += from.weight;
    return is_lost;
  });
  std::erase_if(call.destinations, [&](const WeightedRank& to) {
    const bool is_lost = is_gone(to.rank);
    if (is_lost && call.on_death == OnDeath::kOwnShare) call.self_weight += to.weight;
    return is_lost;
  });
  return call;
}

Result<NeighborRequest> NeighborExchange::Impl::begin(const NeighborCall& call,
                                                      std::vector<Bytes>* gathered) {
  if (gpu_ != nullptr && gathered != nullptr)
    return Status(Code::kInvalidArgument, "a gather in an exchange of GPU memory");
  if (gpu_ != nullptr) {
    DUNLIN_TRY(gpu_->check(call));
    DUNLIN_TRY(gpu_->delay(call.input_ready));
    DUNLIN_TRY(gpu_->delay(call.output_ready));
  }
  const auto added = [&] {
    const Within inside(is_inside_);
    return router_.add(call, gathered);
  }();
  DUNLIN_ASSIGN(const std::uint64_t number, added);
  if (const Trace* const trace = fabric_.trace())
    router_.find(number)->began = trace->clock().now();
  if (!router_.can_wait(number)) progress();
  return NeighborRequest{number};
}

Status NeighborExchange::Impl::outcome(NeighborRequest request) {
  NeighborOperation* const operation = router_.find(request.number);
  if (operation == nullptr) {
    return {Code::kNotFound, fmt::format("request {} has ended", request.number)};
  }
  if (!operation->is_over()) return Status::busy();
  Status outcome = operation->failure;
  if (Trace* const trace = fabric_.trace(); trace != nullptr && outcome.is_ok()) {
    trace->span(operation->is_reduction ? "neighbor-average" : "neighbor-gather", operation->began,
                trace->clock().now(), static_cast<std::int64_t>(operation->bytes));
  }
  router_.end(request.number);
  return outcome;
}

Status NeighborExchange::Impl::wait(NeighborRequest request, Duration timeout) {
  Status status = fabric_.wait(
      [&] { return test(request); },
      transport::Awaiting{[&] { return awaited(request); }, [&] { return blocker(request); }},
      timeout);
  if (NeighborOperation* const operation = router_.find(request.number); operation != nullptr) {
    // The cause of the failure says more than the peer that didn't take the rest.
    if (!operation->failure.is_ok()) status = operation->failure;
    operation->fail(status);
    router_.end(request.number);
  }
  return status;
}

void NeighborExchange::Impl::give_up(NeighborRequest request, Missed missed) {
  NeighborOperation* const operation = router_.find(request.number);
  if (operation == nullptr) return;
  operation->fail({Code::kClosed, fmt::format("'{}' was canceled", operation->name)});
  if (missed == Missed::kNextGather) router_.give_back(*operation);
  router_.end(request.number);
}

std::vector<transport::Awaited> NeighborExchange::Impl::awaited(NeighborRequest request) {
  std::vector<transport::Awaited> result;
  const NeighborOperation* const operation = router_.find(request.number);
  if (operation == nullptr) return result;
  const auto note = [&](const neighbor::Pair& pair, std::uint32_t sequence, const char* how,
                        std::size_t part) {
    // A peer that is gone fails the call in the next test(), which still sends to the others.
    if (!fabric_.peers().is_present(pair.peer)) return;
    result.push_back({pair.peer, fmt::format("'{}' {}: {} {} of {} bytes", operation->name,
                                             sequence, how, part, operation->bytes)});
  };
  for (const Intake& intake : operation->intakes) {
    if (intake.has_arrived() || !operation->failure.is_ok()) continue;
    note(*intake.pair, intake.sequence, "received", intake.arrived);
  }
  for (const Delivery& delivery : operation->deliveries) {
    if (!delivery.is_over) note(*delivery.pair, delivery.sequence, "sent", delivery.sent);
  }
  return result;
}

Rank NeighborExchange::Impl::blocker(NeighborRequest request) {
  const NeighborOperation* const operation = router_.find(request.number);
  if (operation == nullptr) return {};
  for (const Intake& intake : operation->intakes) {
    if (!intake.has_arrived() && operation->failure.is_ok() &&
        fabric_.peers().is_present(intake.pair->peer)) {
      return intake.pair->peer;
    }
  }
  for (const Delivery& delivery : operation->deliveries) {
    if (!delivery.is_over && fabric_.peers().is_present(delivery.pair->peer))
      return delivery.pair->peer;
  }
  return {};
}

NeighborExchange::NeighborExchange(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NeighborExchange::~NeighborExchange() = default;

Result<std::unique_ptr<NeighborExchange>> NeighborExchange::create(transport::Fabric& fabric,
                                                                   NeighborOptions options) {
  const std::size_t slot_bytes = options.slot_bytes.value_or(options.gpu ? kGpuSlot : kHostSlot);
  if (slot_bytes < kSmallestSlot || slot_bytes % transport::kCacheLine != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("slots of {} bytes: at least {}, in whole cache lines", slot_bytes,
                              kSmallestSlot));
  }
  if (options.fusion_threshold > neighbor::kSmall) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a fusion threshold of {} bytes: messages have up to {}",
                              *options.fusion_threshold, neighbor::kSmall));
  }
  std::unique_ptr<neighbor::GpuWork> gpu;
  if (options.gpu) {
    DUNLIN_ASSIGN(gpu, neighbor::GpuWork::create(fabric, *options.gpu));
  }
  auto impl = std::make_unique<Impl>(fabric, std::move(options), slot_bytes, std::move(gpu));
  return std::unique_ptr<NeighborExchange>(new NeighborExchange(std::move(impl)));
}

Result<NeighborRequest> NeighborExchange::start(const NeighborCall& call) {
  return impl_->start(call, nullptr);
}

Result<NeighborRequest> NeighborExchange::start_gather(const NeighborCall& call,
                                                       std::vector<Bytes>& gathered) {
  return impl_->start(call, &gathered);
}

Status NeighborExchange::begin_seeking(std::string_view name, std::span<const Rank> ranks) {
  return impl_->router().begin_seeking(name, ranks);
}

void NeighborExchange::end_seeking(std::string_view name, std::span<const Rank> ranks) {
  impl_->router().end_seeking(name, ranks);
}

bool NeighborExchange::has_arrived(std::string_view name, Rank source) const {
  return impl_->router().has_arrived(name, source);
}

Status NeighborExchange::test(NeighborRequest request) {
  return impl_->test(request);
}

Status NeighborExchange::outcome(NeighborRequest request) {
  return impl_->outcome(request);
}

Status NeighborExchange::wait(NeighborRequest request, Duration timeout) {
  return impl_->wait(request, timeout);
}

void NeighborExchange::give_up(NeighborRequest request, Missed missed) {
  impl_->give_up(request, missed);
}

Status NeighborExchange::run(const NeighborCall& call) {
  DUNLIN_ASSIGN(const NeighborRequest request, start(call));
  return wait(request, impl_->deadline());
}

Status NeighborExchange::gather(const NeighborCall& call, std::vector<Bytes>& gathered) {
  DUNLIN_ASSIGN(const NeighborRequest request, start_gather(call, gathered));
  return wait(request, impl_->deadline());
}

void NeighborExchange::progress() {
  impl_->progress();
}

std::size_t NeighborExchange::outstanding() const {
  return impl_->router().size();
}

bool NeighborExchange::needs_progress() const {
  return impl_->router().needs_progress();
}

NeighborTraffic NeighborExchange::traffic() const {
  return impl_->router().traffic();
}

std::vector<transport::Awaited> NeighborExchange::awaited(NeighborRequest request) const {
  return impl_->awaited(request);
}

Rank NeighborExchange::blocker(NeighborRequest request) const {
  return impl_->blocker(request);
}

}  // namespace dunlin::collective
