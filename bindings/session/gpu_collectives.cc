#include "bindings/session/gpu_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/session/agreement.h"
#include "collectives/kernels/gpu/gpu_kernels.h"
#include "runtime/gpu/cuda_driver.h"

namespace dunlin::binding {

using transport::Awaited;
using transport::Fabric;

namespace {

// Users see these names if another member makes a call on host memory instead.
constexpr std::string_view kFirstCall = "the first call on memory of a GPU";
constexpr std::string_view kCommunicator = "a communicator of GPUs";
constexpr std::string_view kHostCommunicator = "a communicator for short calls on memory of GPUs";
constexpr std::string_view kMemory = "staging memory of GPUs";

// What the members tell one another.
struct Offer {
  std::uint64_t number = 0;     // no other one of its rank
  std::uint64_t is_pinned = 0;  // GpuStaging::is_pinned(), once it is known
  std::int32_t rank = 0;        // of the job
  std::int32_t code = 0;        // kOk, or why the member can't take part
};
static_assert(std::has_unique_object_representations_v<Offer>);

// The offers of all members.
Result<std::vector<Offer>> exchange(Session& session, const CommunicatorHandle& communicator,
                                    const Offer& own, std::string_view name,
                                    const Session::Interrupt& interrupt) {
  std::vector<std::uint8_t> bytes(sizeof own);
  std::memcpy(bytes.data(), &own, sizeof own);
  DUNLIN_ASSIGN(const auto all, gather(session, communicator, std::move(bytes), name, interrupt));
  std::vector<Offer> offers(all.size() / sizeof own);
  std::memcpy(offers.data(), all.data(), all.size());
  return offers;
}

// The first member that can't take part; null if all can.
const Offer* first_failure(const std::vector<Offer>& offers) {
  const auto found = std::ranges::find_if(
      offers, [](const Offer& offer) { return static_cast<Code>(offer.code) != Code::kOk; });
  return found == offers.end() ? nullptr : &*found;
}

// The error of the first member that can't take part, with its code at all members. A member with
// the same error words it itself.
Status judge(const std::vector<Offer>& offers, Status own) {
  const Offer* const failure = first_failure(offers);
  if (failure == nullptr) return Status::ok();
  const auto code = static_cast<Code>(failure->code);
  if (own.code() == code) return own;
  const std::string here = own.is_ok() ? "" : fmt::format("; here: {}", own.message());
  return Status(code, fmt::format("calls on memory of GPUs failed at rank {}: {}{}", failure->rank,
                                  to_string(code), here))
      .with_peer(Rank(failure->rank));
}

// Whether the GPU can reduce.
Status check_device(const std::shared_ptr<GpuDriver>& driver, int device) {
  return collective::GpuKernels::load(driver, device).status();
}

}  // namespace

class GpuCollectives::Operation final : public ResidentOperation {
 public:
  explicit Operation(std::shared_ptr<GpuStaging> staging)
      : ResidentOperation(staging), staging_(std::move(staging)) {}

  Status begin(GpuCall call) {
    DUNLIN_ASSIGN(work_, staging_->start(std::move(call)));
    return Status::ok();
  }
  Status test() override {
    if (is_over()) return outcome();
    return work_->outcome ? *work_->outcome : Status::busy();
  }
  bool uses(const CommunicatorSlot& communicator) const override {
    return &communicator == staging_->gpus().get() || &communicator == staging_->hosts().get();
  }

 private:
  // The caller's memory may be in use for a while after a death.
  bool handles_deaths() const override { return true; }
  std::vector<Awaited> awaited() const override { return staging_->awaited(); }

  std::shared_ptr<GpuStaging> staging_;
  std::shared_ptr<GpuStaging::Work> work_;
};

Result<std::shared_ptr<GpuCollectives>> GpuCollectives::of(Session& session,
                                                           const CommunicatorHandle& communicator,
                                                           int device,
                                                           const Session::Interrupt& interrupt) {
  std::shared_ptr<GpuCollectives> found;
  DUNLIN_TRY(session.with_fabric([&](Fabric&) -> Status {
    if (!communicator->communicator) return {Code::kClosed, "the communicator was released"};
    if (communicator->communicator->is_on_gpu())
      return {Code::kInvalidArgument, "the communicator is one of GPUs itself"};
    found = communicator->gpu;
    return communicator->gpu_failure;
  }));
  if (!found) return create(session, communicator, device, interrupt);
  if (found->device() == device) return found;
  return Status(Code::kInvalidArgument,
                fmt::format("memory of GPU {}, but calls of this communicator use GPU {}, as its "
                            "first call on memory of a GPU did; make a communicator for each GPU "
                            "by split()",
                            device, found->device()));
}

Result<std::shared_ptr<GpuCollectives>> GpuCollectives::create(
    Session& session, const CommunicatorHandle& communicator, int device,
    const Session::Interrupt& interrupt) {
  static std::atomic<std::uint64_t> last_number{0};
  Offer offer{.number = last_number++, .rank = session.job().rank.value()};
  // Every member comes to this with its status, in each of the steps below. None goes on unless all
  // can.
  const auto agree = [&](Status own, std::string_view step) -> Result<std::vector<Offer>> {
    offer.code = static_cast<std::int32_t>(own.code());
    DUNLIN_ASSIGN(auto offers, exchange(session, communicator, offer, step, interrupt));
    const Offer* const failure = first_failure(offers);
    if (failure == nullptr) return offers;
    Status status = judge(offers, std::move(own));
    if (static_cast<Code>(failure->code) != Code::kUnavailable) return status;
    DUNLIN_TRY(session.with_fabric([&](Fabric&) {
      communicator->gpu_failure = status;
      return Status::ok();
    }));
    return status;
  };
  const auto driver = load_cuda_driver();
  DUNLIN_ASSIGN(const auto offers,
                agree(driver ? check_device(*driver, device) : driver.status(), kFirstCall));
  std::vector<Rank> members;
  for (const Offer& each : offers) members.emplace_back(each.rank);
  const auto& first = offers.front();
  std::vector<CommunicatorHandle> formed;
  Status own;  // how far this member has come, which the others hear in the next step
  const auto form = [&](std::string name, std::string_view step, std::optional<int> gpu) -> Status {
    if (!own.is_ok()) return agree(std::move(own), step).status();
    std::optional<Status> met;  // what the members have agreed on once each has prepared its part
    auto made = session.form(
        std::move(name), members,
        [&](const Session::Interrupt&) {
          met = agree(Status::ok(), step).status();
          return *met;
        },
        {}, gpu);
    own = made.status().with_context(met ? "memory of GPUs" : "memory of a GPU");
    if (made) formed.push_back(std::move(*made));
    return met ? std::move(*met) : agree(std::move(own), step).status();
  };
  std::shared_ptr<GpuStaging> staging;
  const auto prepare = [&]() -> Status {
    DUNLIN_TRY(form(fmt::format("gpus {}.{}", first.rank, first.number), kCommunicator, device));
    DUNLIN_TRY(form(fmt::format("hosts of gpus {}.{}", first.rank, first.number), kHostCommunicator,
                    std::nullopt));
    if (own.is_ok()) {
      own = session.attach([&](Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
        DUNLIN_ASSIGN(staging,
                      GpuStaging::create(fabric, *driver, device, formed.front(), formed.back()));
        return std::shared_ptr<Resident>(staging);
      });
    }
    offer.is_pinned = staging && staging->is_pinned() ? 1 : 0;
    DUNLIN_ASSIGN(const auto last, agree(std::move(own), kMemory));
    if (std::ranges::all_of(last, &Offer::is_pinned)) return Status::ok();
    return session.with_fabric([&](Fabric&) {
      staging->make_all_calls_on_gpu();
      return Status::ok();
    });
  };
  if (Status status = prepare(); !status.is_ok()) {
    if (staging) session.detach(*staging);
    for (const CommunicatorHandle& each : formed) session.release_later(each);
    return status;
  }
  std::shared_ptr<GpuCollectives> result(new GpuCollectives(session, *driver, device, staging));
  DUNLIN_TRY(session.with_fabric([&](Fabric&) {
    communicator->gpu = result;
    return Status::ok();
  }));
  return result;
}

Session::Make GpuCollectives::maker(GpuCall& call, std::function<void()>& when_over) const {
  return [&call, &when_over, this](Fabric&) -> Result<std::shared_ptr<SessionOperation>> {
    auto operation = std::make_shared<Operation>(staging_);
    DUNLIN_TRY(operation->begin(std::move(call)));
    operation->when_over(std::move(when_over));
    return std::shared_ptr<SessionOperation>(std::move(operation));
  };
}

Result<std::shared_ptr<SessionOperation>> GpuCollectives::start(GpuCall call,
                                                                std::function<void()> when_over) {
  return session_.start(maker(call, when_over));
}

Status GpuCollectives::run(GpuCall call, const Session::Interrupt& interrupt,
                           std::shared_ptr<SessionOperation>* unfinished) {
  std::function<void()> nothing;
  return session_.run(maker(call, nothing), session_.config().deadline, interrupt, unfinished);
}

Result<std::shared_ptr<GpuEvent>> GpuCollectives::event_after(NativeGpuStream stream) {
  DUNLIN_ASSIGN(std::shared_ptr<GpuEvent> event, driver_->create_event(device_));
  DUNLIN_TRY(event->record(stream));
  return event;
}

Status GpuCollectives::release(const Session::Interrupt& interrupt) {
  bool has_gpus = false;  // not if an earlier call got no further
  DUNLIN_TRY(session_.with_fabric([&](Fabric&) {
    has_gpus = gpus()->communicator != nullptr;
    return Status::ok();
  }));
  if (has_gpus) DUNLIN_TRY(session_.release(gpus(), interrupt));
  session_.detach(*staging_);
  return session_.release(staging_->hosts(), interrupt);
}

}  // namespace dunlin::binding
