// GpuStaging: collective calls on memory of a GPU that belongs to the caller, in progress. Part of
// GpuCollectives (gpu_collectives.h).
//
// A communicator of GPUs takes memory of its own only (communicator.h). A call on other memory is
// therefore divided into parts. Each part copies a slice of the input to a slot of the
// communicator's memory, runs there, and copies the result to the output. All copies are within the
// GPU. They are put in streams of this object, behind the events that the caller gives, so that no
// thread waits for a stream of the caller. Up to kSlots parts are in progress at a time. Parts are
// posted to the communicator in the order of the calls, which all members make alike.
//
// A short call runs in slots of host memory, whatever memory the caller passes, on a communicator
// of host memory, which takes microseconds among the members of a host. Copies between GPU and
// host, but for very short ones to the GPU, run beside the kernels of other processes. A copy
// within the GPU waits until its process gets the GPU: 139 us on an H100 that others use
// (bench/gpu/README.md).
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "bindings/session/session.h"
#include "collectives/schedule/problem.h"
#include "runtime/gpu/driver.h"

namespace dunlin::binding {

// A collective call on memory of a GPU.
struct GpuCall {
  // All of it but the memory is the same on all members, as in communicator.h. In a broadcast, the
  // root passes its input and all members pass an output.
  collective::Call call;
  // Recorded events. The work before them is complete before the call reads its input, and before
  // it writes its output. Null: the memory is ready.
  std::shared_ptr<GpuEvent> input_ready{};
  std::shared_ptr<GpuEvent> output_ready{};
};

// All methods need the session's lock.
class GpuStaging final : public Resident {
 public:
  // GPU memory that the communicator gives for staging, in slots. A copy or a kernel of a whole
  // slot takes about as long on a GPU as its launch, so that longer slots would gain little. Four
  // slots let the copies in, the transfers and the copies out of different parts overlap.
  static constexpr std::size_t kSlots = 4;
  static constexpr std::size_t kSlotBytes = std::size_t{16} << 20;
  // Slots in host memory. Longer calls gain from the GPU's bandwidth.
  static constexpr std::size_t kHostSlotBytes = std::size_t{256} << 10;

  // A call in progress. It has an outcome once it uses no memory of the caller any more.
  struct Work {
    GpuCall what;
    std::string name;  // what.call.name refers to it
    // The call runs on the caller's memory, which is the communicator's. Only the input of a
    // broadcast is copied, to the output.
    bool is_direct = false;
    bool is_short = false;  // it runs in host memory
    std::size_t slice = 0;  // elements per part
    std::size_t parts = 1;
    std::size_t begun = 0;
    std::optional<Status> outcome;
  };

  // Allocates the slots. `hosts` is a communicator of host memory of the same members.
  static Result<std::shared_ptr<GpuStaging>> create(transport::Fabric& fabric,
                                                    std::shared_ptr<GpuDriver> driver, int device,
                                                    CommunicatorHandle gpus,
                                                    CommunicatorHandle hosts);
  ~GpuStaging() override { unpin(); }

  // Appends a call. Returns the error after which this object takes no more calls, if there was
  // one.
  Result<std::shared_ptr<Work>> start(GpuCall call);
  void progress() override;
  bool is_served() const override { return false; }
  // Waits until no copy is in progress, for Config::deadline at most.
  void close() override;
  // The peers that the oldest call waits for. This rank itself while it waits for the GPU.
  std::vector<transport::Awaited> awaited();
  // False if the slots in host memory could not be pinned. If that is so at any member, all have to
  // make all calls on the GPU; by default, short ones are not.
  bool is_pinned() const { return pinned_ != nullptr; }
  void make_all_calls_on_gpu() { has_short_calls_ = false; }
  const CommunicatorHandle& gpus() const { return gpus_; }
  const CommunicatorHandle& hosts() const { return hosts_; }

 private:
  enum class Stage { kCopyingIn, kRunning, kCopyingOut, kDone };
  struct Slot {
    std::byte* on_gpu = nullptr;
    std::byte* on_host = nullptr;
    std::unique_ptr<GpuEvent> is_filled;   // the copies in
    std::unique_ptr<GpuEvent> is_emptied;  // the copies out
  };
  struct Part {
    std::shared_ptr<Work> work;
    Slot* slot = nullptr;
    std::size_t begin = 0;  // elements: the slice
    std::size_t count = 0;
    Stage stage = Stage::kCopyingIn;
    bool has_event = false;  // the slot's event of this stage stands behind all of its copies
    // While they are in progress: the call, and the announcement of a long one.
    std::optional<collective::CollectiveRequest> request{};
    std::optional<collective::CollectiveRequest> announcement{};
  };
  // A block of a call's memory and of a part's.
  struct Block {
    std::byte* caller = nullptr;
    std::byte* part = nullptr;
  };

  GpuStaging(transport::Fabric& fabric, std::shared_ptr<GpuDriver> driver, int device,
             CommunicatorHandle gpus, CommunicatorHandle hosts)
      : Resident(fabric),
        driver_(std::move(driver)),
        device_(device),
        gpus_(std::move(gpus)),
        hosts_(std::move(hosts)) {}
  Status check_open() const;
  bool is_direct(const collective::Call& call) const;
  std::size_t slice_of(const collective::Call& call, std::size_t slot_bytes) const;
  collective::Communicator& communicator_of(const Work& work) const {
    return *(work.is_short ? hosts_ : gpus_)->communicator;
  }
  bool has_communicators() const { return gpus_->communicator && hosts_->communicator; }
  std::vector<Block> inputs_of(const Part& part) const;
  std::vector<Block> outputs_of(const Part& part) const;
  collective::Call call_of(const Part& part) const;
  Status advance();
  Status begin_parts();
  Status advance(Part& part);
  Status post(Part& part);
  // Returns kBusy until the part's requests have ended.
  Status run(Part& part);
  Status copy_in(Part& part);
  Status copy_out(Part& part);
  void fail(Status why);
  // After a failure, ends the calls of which no copy is in progress.
  void give_up();
  bool is_copying(const Part& part);
  void unpin();
  static void finish(Work& work, Status outcome);
  void finish_all(const Status& outcome);

  std::shared_ptr<GpuDriver> driver_;
  const int device_;
  CommunicatorHandle gpus_;
  CommunicatorHandle hosts_;
  std::shared_ptr<MemoryRegion> host_memory_;  // of the slots there
  std::byte* pinned_ = nullptr;                // those slots, once they are pinned
  bool has_short_calls_ = true;
  std::unique_ptr<GpuStream> in_;   // for copies from the callers' memory
  std::unique_ptr<GpuStream> out_;  // for copies to it
  std::array<Slot, kSlots> slots_;
  std::size_t parts_begun_ = 0;              // part n uses slot n % kSlots
  std::deque<std::shared_ptr<Work>> works_;  // in progress, the oldest first
  std::deque<Part> parts_;                   // in progress, the oldest first
  std::optional<transport::Fabric::StayAwake> awake_;
  Status failure_;
  bool is_closed_ = false;
};

}  // namespace dunlin::binding
