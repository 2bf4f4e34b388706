#include "collectives/bindings/c10d/group.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "collectives/bindings/c10d/tensors.h"

namespace dunlin::torch_backend {

using c10d::OpType;
using collective::Call;
using collective::Collective;
using collective::DataType;
using collective::Reduction;

namespace {

// Data that are moved only: bytes, whatever their type.
Call move_call(Collective collective, const at::Tensor& input, const at::Tensor& output,
               std::size_t bytes, int root = 0) {
  return {collective, input.data_ptr(), output.data_ptr(), bytes, {DataType::kUint8}, root};
}

Call reduce_call(Collective collective, const at::Tensor& input, const at::Tensor& output,
                 std::size_t elements, Reduction reduction, int root = 0) {
  return {collective, input.data_ptr(), output.data_ptr(), elements, reduction, root};
}

KeyValueStore wrap(const Handle<c10d::Store>& store) {
  KeyValueStore wrapped;
  wrapped.set = [store](const std::string& key, const std::string& value) {
    store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
  };
  wrapped.get = [store](const std::string& key) {
    const std::vector<uint8_t> value = store->get(key);
    return std::string(value.begin(), value.end());
  };
  wrapped.add = [store](const std::string& key, std::int64_t value) {
    return store->add(key, value);
  };
  return wrapped;
}

void check_lists(std::size_t lists, const char* call) {
  TORCH_CHECK(lists == 1, "dunlin: ", call, ": one list of tensors per process, not ", lists);
}

}  // namespace

Handle<Group> Group::create(const Handle<c10d::Store>& store, int rank, int size,
                            Milliseconds timeout) {
  auto member = Member::meet(wrap(store), {rank, size});
  if (!member) raise(member.status());
  return c10::make_intrusive<Group>(*std::move(member), rank, size, timeout);
}

Group::Group(std::shared_ptr<Member> member, int rank, int size, Milliseconds timeout)
    : TorchBackend(rank, size), member_(std::move(member)), timeout_(timeout) {}

// Starts what the plan says. Where an operation fails to start, those before it go on: the others
// count on them.
Group::Receipts Group::launch(const Plan& plan, Task& task) {
  const Engine& engine = member_->engine();
  Receipts receipts;
  const auto add = [&](Result<std::shared_ptr<binding::Operation>> operation) {
    if (operation) {
      task.add(*std::move(operation));
    } else {
      task.fail_start(operation.status());
    }
    return operation.is_ok();
  };
  for (const Call& call : plan.calls) {
    // Ctrl-C is for waits: a call that was only begun at some members would leave them out of step.
    if (!add(engine.runtime->start(member_->communicator(), call, {}, task.expect())))
      return receipts;
  }
  for (const Message& message : plan.messages) {
    const Rank peer = member_->rank_in_job(message.peer);
    if (message.is_sent) {
      const std::span data(static_cast<const std::byte*>(message.data), message.bytes);
      if (!add(engine.messages->send(peer, plan.topic, data, task.expect()))) return receipts;
      continue;
    }
    auto receipt = engine.messages->receive(peer, plan.topic, task.expect());
    if (!receipt) {
      task.fail_start(receipt.status());
      return receipts;
    }
    (void)add(receipt->operation);
    receipts.emplace_back(message, receipt->result);
  }
  return receipts;
}

// What has come, where it belongs.
void Group::deliver(const Receipts& receipts, const char* title) {
  for (const auto& [message, receipt] : receipts) {
    const Bytes& data = receipt->parts().front();
    TORCH_CHECK(data.size() == message.bytes, title, ": rank ", message.peer, " has sent ",
                data.size(), " bytes, where ", message.bytes, " were expected");
    if (!data.empty()) std::memcpy(message.data, data.data(), data.size());
  }
}

Group::Pending Group::start(Plan plan, Milliseconds timeout) {
  if (Status status = member_->check_process(); !status.is_ok()) raise(status);
  if (member_->engine().finisher->is_stopped())
    raise({Code::kClosed, "this process has left the job"});
  calls_.fetch_add(1);
  // Whatever the operations use stays until they are over, this process's membership included.
  struct Memory {
    std::shared_ptr<Member> member;
    Tensors inputs;
    Tensors outputs;
    Tensors held;
  };
  auto memory = std::make_shared<Memory>(Memory{member_, plan.inputs, plan.outputs, plan.held});
  const Milliseconds limit = timeout.count() > 0 ? timeout : timeout_.load();
  auto task = std::make_shared<Task>(member_->engine().runtime, member_->engine().finisher, limit,
                                     std::move(memory));
  Receipts receipts = launch(plan, *task);
  std::function<void()> finish = std::move(plan.finish);
  if (!receipts.empty()) {
    finish = [receipts = std::move(receipts), title = plan.title] { deliver(receipts, title); };
  }
  auto work = c10::make_intrusive<Work>(getRank(), plan.type, plan.title, plan.inputs, plan.outputs,
                                        std::move(finish));
  Work::start(work, std::move(task));
  return work;
}

void Group::check_root(int64_t root, const char* title) const {
  TORCH_CHECK(root >= 0 && root < getSize(), title, ": root ", root, " in a group of ", getSize());
}

Group::Pending Group::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  constexpr const char* kTitle = "dunlin:broadcast";
  const Tensor& tensor = only(tensors, kTitle);
  check_root(options.rootRank, kTitle);
  const int root = static_cast<int>(options.rootRank);
  return start({.type = OpType::BROADCAST,
                .title = kTitle,
                .inputs = {tensor},
                .outputs = {tensor},
                .calls = {move_call(Collective::kBroadcast, tensor, tensor, bytes(tensor), root)}},
               options.timeout);
}

Group::Pending Group::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  constexpr const char* kTitle = "dunlin:all_reduce";
  const Tensor& tensor = only(tensors, kTitle);
  const Reduction reduction = reduction_of(tensor, options.reduceOp, kTitle);
  return start(
      {.type = OpType::ALLREDUCE,
       .title = kTitle,
       .inputs = {tensor},
       .outputs = {tensor},
       .calls = {reduce_call(Collective::kAllReduce, tensor, tensor, count(tensor), reduction)}},
      options.timeout);
}

Group::Pending Group::allreduce_coalesced(Tensors& tensors,
                                          const c10d::AllreduceCoalescedOptions& options) {
  constexpr const char* kTitle = "dunlin:all_reduce_coalesced";
  TORCH_CHECK(!tensors.empty(), kTitle, ": no tensors");
  check_types(tensors, tensors[0], kTitle);
  const Reduction reduction = reduction_of(tensors[0], options.reduceOp, kTitle);
  const Flat flat = flat_of(tensors);
  std::size_t elements = 0;
  for (const Tensor& tensor : tensors) elements += count(tensor);
  Plan plan{.type = OpType::ALLREDUCE_COALESCED,
            .title = kTitle,
            .inputs = tensors,
            .outputs = tensors,
            .held = {flat.tensor}};
  plan.calls = {reduce_call(Collective::kAllReduce, flat.tensor, flat.tensor, elements, reduction)};
  if (flat.is_copy) {
    pack(tensors, flat.tensor);
    plan.finish = [flat, tensors] { unpack(flat.tensor, tensors); };
  }
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  constexpr const char* kTitle = "dunlin:reduce";
  const Tensor& tensor = only(tensors, kTitle);
  check_root(options.rootRank, kTitle);
  const Reduction reduction = reduction_of(tensor, options.reduceOp, kTitle);
  const int root = static_cast<int>(options.rootRank);
  return start(
      {.type = OpType::REDUCE,
       .title = kTitle,
       .inputs = {tensor},
       .outputs = {tensor},
       .calls = {reduce_call(Collective::kReduce, tensor, tensor, count(tensor), reduction, root)}},
      options.timeout);
}

Group::Pending Group::_allgather_base(Tensor& output, Tensor& input,
                                      const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

Group::Pending Group::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "dunlin:_all_gather_base";
  TORCH_CHECK(outputs.size() == inputs.size(), kTitle, ": ", outputs.size(), " outputs for ",
              inputs.size(), " inputs");
  Plan plan{.type = OpType::_ALLGATHER_BASE, .title = kTitle, .inputs = inputs, .outputs = outputs};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i], kTitle);
    check_types({outputs[i]}, inputs[i], kTitle);
    TORCH_CHECK(count(outputs[i]) == members() * count(inputs[i]), kTitle, ": an output of ",
                outputs[i].numel(), " elements for ", getSize(), " inputs of ", inputs[i].numel());
    plan.calls.push_back(
        move_call(Collective::kAllGather, inputs[i], outputs[i], bytes(inputs[i])));
  }
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::allgather(TensorLists& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "dunlin:all_gather";
  check_lists(outputs.size(), kTitle);
  (void)only(inputs, kTitle);
  return allgather_coalesced(outputs, inputs, options);
}

// Here, inputs are of any number: outputs[i][r] is rank r's inputs[i], or, in the order that
// torch.distributed.all_gather_coalesced has, outputs[r][i].
Group::Pending Group::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "dunlin:all_gather";
  const bool is_by_rank = inputs.size() != 1 || outputs.size() != 1;
  Plan plan{.type = OpType::ALLGATHER, .title = kTitle, .inputs = inputs};
  if (is_by_rank) {
    TORCH_CHECK(outputs.size() == members(), kTitle, ": lists for ", outputs.size(), " of ",
                getSize(), " ranks");
  }
  std::vector<std::pair<Tensor, Tensors>> copies;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i], kTitle);
    Tensors targets;
    for (std::size_t rank = 0; rank < members(); ++rank) {
      const Tensors& list = is_by_rank ? outputs[rank] : outputs[0];
      const std::size_t expected = is_by_rank ? inputs.size() : members();
      TORCH_CHECK(list.size() == expected, kTitle, ": a list of ", list.size(), " tensors, not ",
                  expected);
      targets.push_back(list[is_by_rank ? i : rank]);
      check_like(targets.back(), inputs[i], kTitle);
    }
    const Flat flat = flat_of(targets);
    plan.calls.push_back(
        move_call(Collective::kAllGather, inputs[i], flat.tensor, bytes(inputs[i])));
    plan.outputs.insert(plan.outputs.end(), targets.begin(), targets.end());
    plan.held.push_back(flat.tensor);
    if (flat.is_copy) copies.emplace_back(flat.tensor, std::move(targets));
  }
  plan.finish = [copies = std::move(copies)] {
    for (const auto& [flat, targets] : copies) unpack(flat, targets);
  };
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::_reduce_scatter_base(Tensor& output, Tensor& input,
                                           const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Group::Pending Group::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& options) {
  constexpr const char* kTitle = "dunlin:_reduce_scatter_base";
  TORCH_CHECK(outputs.size() == inputs.size(), kTitle, ": ", outputs.size(), " outputs for ",
              inputs.size(), " inputs");
  Plan plan{
      .type = OpType::_REDUCE_SCATTER_BASE, .title = kTitle, .inputs = inputs, .outputs = outputs};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(outputs[i], kTitle);
    check_types({inputs[i]}, outputs[i], kTitle);
    TORCH_CHECK(count(inputs[i]) == members() * count(outputs[i]), kTitle, ": an input of ",
                inputs[i].numel(), " elements for ", getSize(), " outputs of ", outputs[i].numel());
    plan.calls.push_back(reduce_call(Collective::kReduceScatter, inputs[i], outputs[i],
                                     count(outputs[i]),
                                     reduction_of(outputs[i], options.reduceOp, kTitle)));
  }
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                     const c10d::ReduceScatterOptions& options) {
  constexpr const char* kTitle = "dunlin:reduce_scatter";
  const Tensor& output = only(outputs, kTitle);
  check_lists(inputs.size(), kTitle);
  TORCH_CHECK(inputs[0].size() == members(), kTitle, ": ", inputs[0].size(), " inputs for ",
              getSize(), " ranks");
  for (const Tensor& input : inputs[0]) check_like(input, output, kTitle);
  const Reduction reduction = reduction_of(output, options.reduceOp, kTitle);
  const Flat flat = flat_of(inputs[0]);
  if (flat.is_copy) pack(inputs[0], flat.tensor);
  return start({.type = OpType::REDUCE_SCATTER,
                .title = kTitle,
                .inputs = inputs[0],
                .outputs = {output},
                .held = {flat.tensor},
                .calls = {reduce_call(Collective::kReduceScatter, flat.tensor, output,
                                      count(output), reduction)}},
               options.timeout);
}

Group::Plan Group::exchange(OpType type, const char* title, const Tensors& outputs,
                            const Tensors& inputs) {
  Plan plan{.type = type,
            .title = title,
            .inputs = inputs,
            .outputs = outputs,
            .topic = member_->name() + "/exchange"};
  for (int rank = 0; rank < getSize(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    const Tensor* const input = place < inputs.size() ? &inputs[place] : nullptr;
    const Tensor* const output = place < outputs.size() ? &outputs[place] : nullptr;
    if (input != nullptr) check(*input, title);
    if (output != nullptr) check(*output, title);
    if (rank != getRank()) {
      if (input != nullptr) plan.messages.push_back({rank, input->data_ptr(), bytes(*input), true});
      if (output != nullptr)
        plan.messages.push_back({rank, output->data_ptr(), bytes(*output), false});
    } else if (input != nullptr && output != nullptr) {
      check_like(*output, *input, title);
      if (input->numel() > 0) std::memmove(output->data_ptr(), input->data_ptr(), bytes(*input));
    }
  }
  return plan;
}

Group::Pending Group::gather(TensorLists& outputs, Tensors& inputs,
                             const c10d::GatherOptions& options) {
  constexpr const char* kTitle = "dunlin:gather";
  const Tensor& input = only(inputs, kTitle);
  check_root(options.rootRank, kTitle);
  const int root = static_cast<int>(options.rootRank);
  if (getRank() != root) {
    TORCH_CHECK(outputs.empty(), kTitle, ": outputs are the root's");
    Plan plan{.type = OpType::GATHER, .title = kTitle, .inputs = inputs};
    plan.messages = {{root, input.data_ptr(), bytes(input), true}};
    plan.topic = member_->name() + "/exchange";
    return start(std::move(plan), options.timeout);
  }
  check_lists(outputs.size(), kTitle);
  TORCH_CHECK(outputs[0].size() == members(), kTitle, ": ", outputs[0].size(), " outputs for ",
              getSize(), " ranks");
  for (const Tensor& output : outputs[0]) check_like(output, input, kTitle);
  Plan plan = exchange(OpType::GATHER, kTitle, outputs[0], {});
  const Tensor& own = outputs[0][static_cast<std::size_t>(root)];
  if (input.numel() > 0) std::memmove(own.data_ptr(), input.data_ptr(), bytes(input));
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::scatter(Tensors& outputs, TensorLists& inputs,
                              const c10d::ScatterOptions& options) {
  constexpr const char* kTitle = "dunlin:scatter";
  const Tensor& output = only(outputs, kTitle);
  check_root(options.rootRank, kTitle);
  const int root = static_cast<int>(options.rootRank);
  if (getRank() != root) {
    TORCH_CHECK(inputs.empty(), kTitle, ": inputs are the root's");
    Plan plan{.type = OpType::SCATTER, .title = kTitle, .outputs = outputs};
    plan.messages = {{root, output.data_ptr(), bytes(output), false}};
    plan.topic = member_->name() + "/exchange";
    return start(std::move(plan), options.timeout);
  }
  check_lists(inputs.size(), kTitle);
  TORCH_CHECK(inputs[0].size() == members(), kTitle, ": ", inputs[0].size(), " inputs for ",
              getSize(), " ranks");
  for (const Tensor& input : inputs[0]) check_like(input, output, kTitle);
  Plan plan = exchange(OpType::SCATTER, kTitle, {}, inputs[0]);
  const Tensor& own = inputs[0][static_cast<std::size_t>(root)];
  if (own.numel() > 0) std::memmove(output.data_ptr(), own.data_ptr(), bytes(own));
  plan.outputs = outputs;
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::alltoall(Tensors& outputs, Tensors& inputs,
                               const c10d::AllToAllOptions& options) {
  constexpr const char* kTitle = "dunlin:all_to_all";
  TORCH_CHECK(outputs.size() == members() && inputs.size() == members(), kTitle, ": ",
              outputs.size(), " outputs and ", inputs.size(), " inputs for ", getSize(), " ranks");
  return start(exchange(OpType::ALLTOALL, kTitle, outputs, inputs), options.timeout);
}

Group::Pending Group::alltoall_base(Tensor& output, Tensor& input,
                                    std::vector<int64_t>& output_splits,
                                    std::vector<int64_t>& input_splits,
                                    const c10d::AllToAllOptions& options) {
  constexpr const char* kTitle = "dunlin:all_to_all_single";
  check(input, kTitle);
  check_types({output}, input, kTitle);
  const auto parts_of = [&](const Tensor& tensor, const std::vector<int64_t>& splits) {
    if (!splits.empty()) {
      TORCH_CHECK(splits.size() == members(), kTitle, ": ", splits.size(), " split sizes for ",
                  getSize(), " ranks");
      return tensor.split_with_sizes(splits, 0);
    }
    TORCH_CHECK(tensor.dim() > 0 && tensor.size(0) % getSize() == 0, kTitle,
                ": the first dimension isn't divisible by the ", getSize(), " ranks");
    return tensor.split_with_sizes(std::vector<int64_t>(members(), tensor.size(0) / getSize()), 0);
  };
  const Tensors outputs = parts_of(output, output_splits);
  const Tensors inputs = parts_of(input, input_splits);
  if (!output_splits.empty() || !input_splits.empty()) {
    Plan plan = exchange(OpType::ALLTOALL_BASE, kTitle, outputs, inputs);
    plan.outputs = {output};
    return start(std::move(plan), options.timeout);
  }
  check_like(output, input, kTitle);
  return start(
      {.type = OpType::ALLTOALL_BASE,
       .title = kTitle,
       .inputs = {input},
       .outputs = {output},
       .calls = {move_call(Collective::kAllToAll, input, output, bytes(input) / members())}},
      options.timeout);
}

Group::Pending Group::barrier(const c10d::BarrierOptions& options) {
  return start({.type = OpType::BARRIER,
                .title = "dunlin:barrier",
                .calls = {{.collective = Collective::kBarrier}}},
               options.timeout);
}

void Group::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) {
  // Its error names a rank that did not come, as every one of Dunlin's does.
  barrier(options)->wait(kNoTimeout);
}

Group::Pending Group::send(Tensors& tensors, int rank, int tag) {
  constexpr const char* kTitle = "dunlin:send";
  const Tensor& tensor = only(tensors, kTitle);
  check_root(rank, kTitle);
  TORCH_CHECK(rank != getRank(), kTitle, ": to itself");
  Plan plan{.type = OpType::SEND, .title = kTitle, .inputs = tensors};
  plan.messages = {{rank, tensor.data_ptr(), bytes(tensor), true}};
  plan.topic = fmt::format("{}/tag/{}", member_->name(), tag);
  return start(std::move(plan), c10d::kUnsetTimeout);
}

Group::Pending Group::recv(Tensors& tensors, int rank, int tag) {
  constexpr const char* kTitle = "dunlin:recv";
  const Tensor& tensor = only(tensors, kTitle);
  check_root(rank, kTitle);
  TORCH_CHECK(rank != getRank(), kTitle, ": from itself");
  Plan plan{.type = OpType::RECV, .title = kTitle, .outputs = tensors};
  plan.messages = {{rank, tensor.data_ptr(), bytes(tensor), false}};
  plan.topic = fmt::format("{}/tag/{}", member_->name(), tag);
  return start(std::move(plan), c10d::kUnsetTimeout);
}

}  // namespace dunlin::torch_backend
