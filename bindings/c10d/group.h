// Group: Dunlin as a backend of torch.distributed.
//
// As for every c10d backend, all members make the same calls in the same order, and calls return a
// Work at once. Tensors are dense; all-reduce takes sparse ones as well. Those that are not in host
// memory or not contiguous go through copies (staging.h), for which calls and their ends wait. Many
// calls use tensors of a GPU where they are (gpu.h). Calls that Dunlin can't carry out throw an
// exception that says why. Threads: any, without the GIL.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c10d/engine.h"
#include "bindings/c10d/gpu.h"
#include "bindings/c10d/staging.h"
#include "bindings/c10d/store_server.h"
#include "bindings/c10d/torch.h"
#include "bindings/c10d/work.h"
#include "collectives/communicator/arguments.h"
#include "runtime/bytes.h"

namespace dunlin::torch_backend {

class Group final : public TorchBackend {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Tensor = at::Tensor;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using Pending = Handle<c10d::Work>;

  // Collective over the members alone. `timeout`: for every call. `store_ends_with_it`: whether the
  // store's server ends when the first member destroys the group, for which the destructor of other
  // members then waits, a second at most.
  static Handle<Group> create(const Handle<c10d::Store>& store, int rank, int size,
                              Milliseconds timeout, bool store_ends_with_it = false);
  Group(std::shared_ptr<Member> member, int rank, int size, Milliseconds timeout,
        StoreServer server);
  ~Group() override;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string getBackendName() const override { return "dunlin"; }

  Pending broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Pending allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Pending allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  Pending reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Pending allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  Pending _allgather_base(Tensor& output, Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  Pending allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  Pending reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  Pending _reduce_scatter_base(Tensor& output, Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  Pending gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  Pending scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override;
  Pending alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  // Either all ranks give split sizes or none does.
  Pending alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  Pending barrier(const c10d::BarrierOptions& options) override;
  // Works as gloo's: rank 0 waits for the other ranks and tells them the outcome. Its error names
  // the first missing rank, or with `wait_all` all missing ranks. Rank 0 waits for the timeout of
  // the options. If that is zero, and `wait_all` is false, it fails at once. The other ranks wait
  // for rank 0, for the timeout of the options or of the group, whichever is longer.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) override;
  Pending send(Tensors& tensors, int rank, int tag) override;
  Pending recv(Tensors& tensors, int rank, int tag) override;
  // Receives the message of this tag that comes first, from any rank.
  Pending recvAnysource(Tensors& tensors, int tag) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return calls_.load(); }

  // The following functions override those of PyTorch's versions that have them: coalesced forms
  // from 2.1 on, other calls later.
  Pending allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options);
  Pending reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options);

  // Sets the timeout of later calls.
  void setTimeout(Milliseconds timeout) { timeout_ = limited(timeout); }
  // Later calls fail on this rank; the other ranks notice by their own timeouts only. abort() also
  // fails calls in progress, soon. Neither blocks: callbacks of futures run in threads of their
  // own.
  void shutdown() { is_closed_ = true; }
  void abort();

#if DUNLIN_TORCH_COALESCES
  // Calls between the two begin at once, as always, but have one Work. One thread at a time.
  bool supportsCoalescing() const override {
    return true;
  }
  void startCoalescing() override;
  Pending endCoalescing() override;
#endif
#if TORCH_VERSION_MAJOR >= 2
  bool supportsSplitting() const {
    return true;
  }
  Handle<c10d::Backend::Options> getBackendOptions();
  // Collective over the given ranks of this group alone; null on other ranks.
  Handle<c10d::Backend> split(const Handle<c10d::Store>& store, const std::vector<int>& ranks,
                              const Handle<c10d::Backend::Options>& options);
#endif

 private:
  static constexpr int kAnyPeer = -1;
  // One message of a call, in the memory of tensors that the call holds.
  struct Message {
    int peer = 0;       // kAnyPeer: the rank whose message comes first
    at::Tensor data{};  // contiguous, in host memory
    bool is_sent = false;
    std::shared_ptr<Bytes> raw{};  // takes a received message of any size, instead of `data`
  };
  // The parts of a call.
  struct Plan {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = "";
    Tensors inputs{};
    Tensors outputs{};
    Tensors held{};     // further tensors that have to live until the end
    GpuHandle gpu{};    // set if the calls are on memory of a GPU; there are no messages then
    Staging staging{};  // between inputs and outputs and the memory that calls and messages use
    std::vector<collective::Call> calls{};
    std::vector<Message> messages{};
    std::string topic{};             // the name of the messages
    std::function<void()> finish{};  // called when received messages have been delivered
  };
  // Where calls on these tensors run: on the group's GPU if all of them are in the memory of GPUs,
  // and if the members can make such calls, which is so at all members or at none. The first call
  // on memory of GPUs waits for the other members.
  GpuHandle gpu_of(std::initializer_list<const Tensors*> lists);
  GpuHandle gpu_of(const Tensor& tensor) {
    const Tensors tensors{tensor};
    return gpu_of({&tensors});
  }
  static void run_on(Plan& plan, GpuHandle gpu) {
    plan.staging = staging_for(gpu);
    plan.gpu = std::move(gpu);
  }
  void check_open() const;
  Pending start(Plan plan, Milliseconds timeout);
  using Receipts = std::vector<std::pair<Message, std::shared_ptr<binding::NeighborGather>>>;
  Receipts launch(const Plan& plan, const std::shared_ptr<GpuEvent>& ready, Task& task,
                  const binding::Session::Interrupt& interrupt);
  static int deliver(const Member& member, const Receipts& receipts, const char* title);
  Pending allreduce_sparse(const Tensor& tensor, const c10d::AllreduceOptions& options);
  // A broadcast from each rank.
  Pending allgather_on_gpu(const Tensors& outputs, const Tensor& input, GpuHandle gpu,
                           Milliseconds timeout);
  // For lists of tensors of unequal sizes.
  Pending allgather_uneven(const Tensors& outputs, const Tensor& input, Milliseconds timeout);
  // A reduce to each rank.
  Pending reduce_scatter_by_rank(const Tensor& output, const Tensors& inputs, GpuHandle gpu,
                                 const c10d::ReduceScatterOptions& options);
  // The two sides of a monitored barrier.
  void await_arrivals(Milliseconds timeout, bool wait_all);
  void await_verdict(Milliseconds timeout);
  void plan_reduce_scatter(Plan& plan, const Tensor& input, const c10d::ReduceOp& op,
                           const Tensor& output);
  void plan_all_bits(Plan& plan, const Tensor& input, const c10d::ReduceOp& op,
                     const Tensor* target);
  void plan_scattered_bits(Plan& plan, const Tensor& input, const c10d::ReduceOp& op,
                           const Tensor& output);
  void plan_gather(Plan& plan, const Tensor& input, const Tensor& output) const;
  // Messages to and from every other rank, in host memory. This rank's own part is copied at once.
  // Either list may be empty.
  void plan_exchange(Plan& plan, const Tensors& outputs, const Tensors& inputs) const;
  // gather to the root or scatter from it: every rank has `own`, and the root has the lists.
  enum class Way { kToRoot, kFromRoot };
  void plan_exchange_with_root(Plan& plan, Way way, int64_t root, const Tensor& own,
                               const TensorLists& lists) const;
  void check_root(int64_t root, const char* title) const;
  // Whether input and output lie as a call allows. PyTorch's users may pass any block of the larger
  // one as the smaller one.
  bool can_be_made(const collective::Call& call) const {
    return collective::check_overlap(call, getRank(), getSize()).is_ok();
  }
  std::size_t members() const {
    return static_cast<std::size_t>(getSize());
  }

  std::shared_ptr<Member> member_;
  StoreServer server_;
  std::atomic<Milliseconds> timeout_;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<bool> is_closed_{false};
  std::atomic<int> gpu_device_{-1};  // the group's GPU, once there was a call on its memory
  std::mutex coalescing_mutex_;
  std::optional<std::vector<Pending>>
      coalesced_;  // under coalescing_mutex_; nullopt: not coalescing
};

}  // namespace dunlin::torch_backend
