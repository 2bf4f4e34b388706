// The communicators of a Session, and their memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "bindings/session/agreement.h"
#include "bindings/session/gpu_collectives.h"
#include "bindings/session/stay.h"

namespace dunlin::binding {

using collective::Call;
using collective::Collective;
using collective::Communicator;
using collective::DataType;

namespace {

// The first turn of a thread that connects a communicator, in which other threads don't get the
// lock. It is long enough for some answers of the coordinator.
constexpr Duration kConnectTurn = std::chrono::milliseconds(10);
// The time between two such turns.
constexpr auto kConnectNap = std::chrono::microseconds(200);

}  // namespace

// Takes turns with other threads: the members may form several communicators at once, in different
// orders.
Status Session::connect(Communicator& communicator, const Interrupt& check) {
  const TimePoint until = clock_.now() + config_.deadline;
  Duration turn = kConnectTurn;
  for (;;) {
    const Duration left = std::max(until - clock_.now(), Duration::zero());
    Status status = communicator.connect(std::min(turn, left));
    if (!is_expiry(status)) return status;
    if (turn >= left) {
      return std::move(status).with_context(
          fmt::format("connecting for {:g} s", to_seconds(config_.deadline)));
    }
    leave();
    std::this_thread::sleep_for(kConnectNap);
    Status told = check ? check() : Status::ok();
    enter();
    DUNLIN_TRY(told.is_ok() ? check_open() : told);
    // If the coordinator is slow, a turn has to be long enough for its answers.
    turn *= 2;
  }
}

// Adds the communicator to the session. The first call on unregistered memory allocates memory on
// all members and waits for them. That call is made here, so that no later call that should return
// at once has to wait. Needs the lock, and gives it up whenever another thread wants it.
Result<CommunicatorHandle> Session::adopt(std::string name,
                                          std::unique_ptr<Communicator> communicator,
                                          const Interrupt& check) {
  auto slot = std::make_shared<CommunicatorSlot>();
  slot->name = std::move(name);
  slot->rank = communicator->rank();
  slot->size = communicator->size();
  slot->communicator = std::move(communicator);
  communicators_.push_back(slot);
  Status status;
  if (!slot->communicator->is_on_gpu()) {
    // An operation that doesn't end here may still write to it.
    const auto value = std::make_shared<float>(1);
    const Call first{Collective::kAllReduce, value.get(), value.get(), 1, {DataType::kFloat32}};
    status = run_inside(slot, first, check, value);
  }
  if (status.is_ok()) status = run_inside(slot, {Collective::kBarrier}, check);
  if (status.is_ok()) return slot;
  unformed_.push_back(std::move(slot->communicator));
  std::erase(communicators_, slot);
  return status;
}

void Session::release_later(const CommunicatorHandle& communicator) {
  const std::lock_guard guard(new_releases_mutex_);
  new_releases_.push_back(communicator);
  has_releases_ = true;
}

// A communicator with a dead member stays until the end, as others may still write to its memory.
void Session::advance_releases() {
  if (!has_releases_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard guard(new_releases_mutex_);
    for (CommunicatorHandle& each : new_releases_) {
      if (each->gpu) {
        const auto& staging = each->gpu->staging();
        for (const auto& part : {staging->gpus(), staging->hosts()})
          pending_releases_.push_back({part, staging, std::nullopt});
      }
      pending_releases_.push_back({std::move(each), nullptr, std::nullopt});
    }
    new_releases_.clear();
  }
  std::erase_if(pending_releases_, [&](PendingRelease& each) {
    CommunicatorSlot& slot = *each.communicator;
    if (!slot.communicator || !slot.failure.is_ok() || !slot.missed.is_ok()) return true;
    if (!each.barrier) {
      auto request = slot.communicator->start({Collective::kBarrier});
      if (!request) return !request.status().is_busy();
      each.barrier = *request;
    }
    const Status status = slot.communicator->test(*each.barrier);
    if (status.is_busy()) return false;
    if (status.is_ok()) {
      if (each.staging) each.staging->close();  // it uses the communicator's memory
      std::erase(residents_, each.staging);
      slot.communicator.reset();
      std::erase(communicators_, each.communicator);
    }
    return true;
  });
  const std::lock_guard guard(new_releases_mutex_);
  has_releases_ = !pending_releases_.empty() || !new_releases_.empty();
}

Result<CommunicatorHandle> Session::split(CommunicatorHandle parent, int color, int key) {
  std::string name;
  {
    const Stay stay(*this);
    DUNLIN_TRY(check(parent));
    name = fmt::format("{}/{}.{}", parent->name, parent->splits++, color);
    if (parent->communicator->is_on_gpu()) {
      // It can't gather what is in host memory.
      DUNLIN_ASSIGN(auto communicator, parent->communicator->split(color, key));
      return adopt(std::move(name), std::move(communicator));
    }
  }
  struct Choice {
    std::int32_t color;
    std::int32_t key;
    std::int32_t rank;  // in the job
  };
  constexpr std::string_view kWhat = "splitting a communicator";
  std::vector<Rank> members;
  Status status = without_exceptions(kWhat, [&]() -> Status {
    const Choice own{color, key, job_.rank.value()};
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&own);
    DUNLIN_ASSIGN(const auto gathered,
                  gather(*this, parent, {bytes, bytes + sizeof own}, "split", {}));
    std::vector<Choice> part;
    for (std::size_t at = 0; at < gathered.size(); at += sizeof own) {
      Choice choice{};
      std::memcpy(&choice, &gathered[at], sizeof choice);
      if (choice.color == color) part.push_back(choice);
    }
    std::ranges::stable_sort(part, {}, &Choice::key);
    for (const Choice& each : part) members.emplace_back(each.rank);
    return Status::ok();
  });
  // A rank whose wait has failed comes to the agreement all the same: the others may have gathered.
  if (!status.is_ok()) return agree(*this, parent, std::move(status), kWhat, {}, {});
  return form_together(std::move(name), std::move(members), {}, std::move(parent), kWhat);
}

Result<CommunicatorHandle> Session::on_gpu(int gpu) {
  return form_together(fmt::format("gpus {}", next_number()), members_, gpu, world_,
                       "making a communicator of GPUs");
}

// A rank without its part, for want of memory for example, meets the others all the same.
Result<CommunicatorHandle> Session::form_together(std::string name, std::vector<Rank> members,
                                                  std::optional<int> gpu,
                                                  CommunicatorHandle witnesses,
                                                  std::string_view what) {
  std::optional<Status> met;
  const auto meet = [&](const Interrupt& interrupt) {
    met = agree(*this, witnesses, Status::ok(), what, {}, interrupt);
    return *met;
  };
  CommunicatorHandle made;
  Status status = without_exceptions(what, [&]() -> Status {
    DUNLIN_ASSIGN(made, form(std::move(name), std::move(members), meet, {}, gpu));
    return Status::ok();
  });
  if (!met) status = agree(*this, witnesses, std::move(status), what, {}, {});
  if (!status.is_ok()) return status;
  return made;
}

Result<CommunicatorHandle> Session::form(std::string name, std::vector<Rank> members,
                                         const std::function<Status(const Interrupt&)>& meet,
                                         const Interrupt& check, std::optional<int> gpu) {
  Stay stay(*this);
  DUNLIN_TRY(check_open());
  collective::CommunicatorOptions options;
  options.name = name;
  options.members = std::move(members);
  options.gpu = gpu;
  DUNLIN_ASSIGN(auto communicator, Communicator::prepare(*fabric_, std::move(options)));
  // From here on, peers may know its memory.
  const auto give_up = [&](Status status) {
    unformed_.push_back(std::move(communicator));
    return status;
  };
  // Operations continue meanwhile, as peers may need their end to come to the meeting.
  const Interrupt while_open = [this] {
    const Turn turn(*this);
    return check_open();
  };
  Status status = stay.aside([&] { return meet(while_open); });
  if (status.is_ok()) status = check_open();
  // The check may ask another host and take a while.
  Interrupt check_aside;
  if (check) check_aside = [&] { return stay.further_aside(check); };
  if (status.is_ok()) status = connect(*communicator, check_aside);
  if (!status.is_ok()) return give_up(std::move(status));
  return adopt(std::move(name), std::move(communicator), check_aside);
}

Status Session::release(const CommunicatorHandle& communicator, const Interrupt& interrupt) {
  std::shared_ptr<GpuCollectives> gpu;
  {
    const Turn turn(*this);
    DUNLIN_TRY(check(communicator));
    if (communicator == world_)
      return {Code::kInvalidArgument, "the communicator of all ranks lasts until shutdown"};
    gpu = communicator->gpu;
  }
  if (gpu) DUNLIN_TRY(gpu->release(interrupt));
  const Stay stay(*this);
  communicator->gpu = nullptr;
  DUNLIN_TRY(check(communicator));
  DUNLIN_TRY(drain(communicator.get(), config_.deadline, interrupt));
  DUNLIN_TRY(run_inside(communicator, {Collective::kBarrier}, interrupt));
  // Other threads may have started some meanwhile.
  DUNLIN_TRY(drain(communicator.get(), config_.deadline, interrupt));
  communicator->communicator.reset();
  std::erase(communicators_, communicator);
  return Status::ok();
}

// It ends with an agreement: a rank without memory is an error at all members, and later calls
// don't have to wait until all members have allocated theirs.
Result<SharedMemory> Session::allocate(const CommunicatorHandle& communicator, std::size_t bytes,
                                       const Interrupt& interrupt) {
  SharedMemory memory;
  const auto make = [&]() -> Status {
    DUNLIN_ASSIGN(memory.bytes, communicator->communicator->allocate(bytes));
    DUNLIN_ASSIGN(memory.owner, communicator->communicator->owner_of(memory.bytes));
    return Status::ok();
  };
  constexpr std::string_view kWhat = "allocating memory";
  Status status;
  {
    const Stay stay(*this);
    DUNLIN_TRY(check(communicator));
    if (communicator->communicator->is_on_gpu()) {
      // Calls that wait for copies are not posted yet. The barrier must not overtake them. Such a
      // communicator can't gather what is in host memory.
      DUNLIN_TRY(drain(communicator.get(), config_.deadline, interrupt));
      DUNLIN_TRY(make());
      DUNLIN_TRY(run_inside(communicator, {Collective::kBarrier}, interrupt));
      return memory;
    }
    status = without_exceptions(kWhat, make);
  }
  status =
      agree(*this, communicator, std::move(status), kWhat, fmt::format("{}", bytes), interrupt);
  if (status.is_ok()) return memory;
  // After another error, the other members may use their memory, and so this one's.
  const Turn turn(*this);
  if (status.code() == Code::kInvalidArgument && memory.owner && communicator->communicator)
    (void)communicator->communicator->free(memory.bytes);
  return status;
}

Status Session::free(const CommunicatorHandle& communicator, std::span<std::byte> memory,
                     const Interrupt& interrupt) {
  const Stay stay(*this);
  DUNLIN_TRY(check(communicator));
  DUNLIN_TRY(drain(communicator.get(), config_.deadline, interrupt));
  DUNLIN_TRY(check(communicator));
  return communicator->communicator->free(memory);
}

}  // namespace dunlin::binding
