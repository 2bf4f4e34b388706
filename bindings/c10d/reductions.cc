// The group's calls that combine data (group.h).
#include <c10/util/Exception.h>

#include <utility>

#include "bindings/c10d/calls.h"
#include "bindings/c10d/group.h"
#include "bindings/c10d/sparse.h"

namespace dunlin::torch_backend {

using c10d::OpType;
using collective::Collective;
using collective::Reduction;

// Plans a bitwise all-reduce of this rank's `input`, one tensor; `target` is null if the result is
// not wanted. Every rank gathers all inputs: this is for bit masks, which are small.
void Group::plan_all_bits(Plan& plan, const Tensor& input, const c10d::ReduceOp& op,
                          const Tensor* target) {
  check_bits(input, plan.title);
  const Tensor rows = at::empty({getSize(), input.numel()}, at::TensorOptions(input.scalar_type()));
  plan.calls.push_back(move_call(Collective::kAllGather, input, rows, bytes(input)));
  plan.held.push_back(rows);
  if (target == nullptr) return;
  plan.finish = [rows, op, target = *target, parts = members()] {
    fold_bits(rows, parts, op, target);
  };
}

// Plans a bitwise reduce-scatter of the parts of `input`, one per rank: every rank gets all ranks'
// parts for itself.
void Group::plan_scattered_bits(Plan& plan, const Tensor& input, const c10d::ReduceOp& op,
                                const Tensor& output) {
  check_bits(input, plan.title);
  const Tensor rows = at::empty({input.numel()}, at::TensorOptions(input.scalar_type()));
  plan.calls.push_back(move_call(Collective::kAllToAll, input, rows, bytes(output)));
  plan.held.push_back(rows);
  plan.finish = [before = std::move(plan.finish), rows, op, output, parts = members()] {
    if (before) before();
    fold_bits(rows, parts, op, output);
  };
}

Group::Pending Group::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  constexpr const char* kTitle = "dunlin:all_reduce";
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].is_sparse())
    return allreduce_sparse(tensors[0], options);
  const Tensor& tensor = only(tensors, kTitle);
  Plan plan{.type = OpType::ALLREDUCE, .title = kTitle, .inputs = {tensor}, .outputs = {tensor}};
  if (!is_bitwise(options.reduceOp)) run_on(plan, gpu_of(tensor));
  const Tensor used = plan.staging.in_out(tensor);
  if (is_bitwise(options.reduceOp)) {
    plan_all_bits(plan, used, options.reduceOp, &used);
    return start(std::move(plan), options.timeout);
  }
  const Reduction reduction = reduction_of(used, options.reduceOp, kTitle);
  const Tensor input = scaled(used, options.reduceOp, kTitle);
  plan.held = {input};
  plan.calls = {reduce_call(Collective::kAllReduce, input, used, count(used), reduction)};
  return start(std::move(plan), options.timeout);
}

// The ranks' tensors have elements at different indices, so each rank gets all of them.
Group::Pending Group::allreduce_sparse(const Tensor& tensor,
                                       const c10d::AllreduceOptions& options) {
  constexpr const char* kTitle = "dunlin:sparse_all_reduce";
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, kTitle,
              ": unsupported reduction operation: sparse tensors have ReduceOp.SUM only");
  TORCH_CHECK(!tensor.is_meta(), kTitle, ": the tensor is on the meta device");
  const at::NoGradGuard guard;
  Plan plan{.type = OpType::ALLREDUCE, .title = kTitle, .inputs = {tensor}, .outputs = {tensor}};
  const Tensor own = tensor.detach().to(at::kCPU).coalesce();
  const Tensor encoded = encode_sparse(own);
  plan.held = {encoded};
  plan.topic = member_->name() + "/sparse";
  std::vector<std::shared_ptr<Bytes>> parts(members());
  for (int rank = 0; rank < getSize(); ++rank) {
    if (rank == getRank()) continue;
    auto& part = parts[static_cast<std::size_t>(rank)] = std::make_shared<Bytes>();
    plan.messages.push_back({rank, encoded, true});
    plan.messages.push_back({rank, {}, false, part});
  }
  plan.finish = [tensor, own, parts = std::move(parts), rank = getRank()] {
    const at::NoGradGuard no_grad;
    Tensor(tensor).copy_(sum_sparse(parts, rank, own, kTitle));
  };
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::allreduce_coalesced(Tensors& tensors,
                                          const c10d::AllreduceCoalescedOptions& options) {
  constexpr const char* kTitle = "dunlin:all_reduce_coalesced";
  TORCH_CHECK(!tensors.empty(), kTitle, ": no tensors");
  check_types(tensors, tensors[0], kTitle);
  // The profiler's name for it is that of gloo.
  Plan plan{.type = OpType::ALLREDUCE_COALESCED,
            .title = "dunlin:all_reduce",
            .inputs = tensors,
            .outputs = tensors};
  if (!is_bitwise(options.reduceOp)) run_on(plan, gpu_of({&tensors}));
  Tensors hosts;
  for (const Tensor& tensor : tensors) hosts.push_back(plan.staging.in_out(tensor));
  if (plan.gpu) {
    for (const Tensor& used : hosts) {
      const Reduction reduction = reduction_of(used, options.reduceOp, kTitle);
      const Tensor input = scaled(used, options.reduceOp, kTitle);
      plan.held.push_back(input);
      plan.calls.push_back(
          reduce_call(Collective::kAllReduce, input, used, count(used), reduction));
    }
    return start(std::move(plan), options.timeout);
  }
  const Flat flat = flat_of(hosts);
  plan.held = {flat.tensor};
  if (flat.is_copy) pack(hosts, flat.tensor);
  // If the tensors lie in memory without gaps, the flat tensor is the first one, which has only its
  // own elements.
  int64_t elements = 0;
  for (const Tensor& tensor : tensors) elements += tensor.numel();
  const Tensor all = at::from_blob(flat.tensor.data_ptr(), {elements},
                                   at::TensorOptions(flat.tensor.scalar_type()));
  if (is_bitwise(options.reduceOp)) {
    plan_all_bits(plan, all, options.reduceOp, &all);
  } else {
    const Reduction reduction = reduction_of(all, options.reduceOp, kTitle);
    const Tensor input = scaled(all, options.reduceOp, kTitle);
    plan.held.push_back(input);
    plan.calls = {reduce_call(Collective::kAllReduce, input, all, count(all), reduction)};
  }
  if (flat.is_copy) {
    plan.finish = [before = std::move(plan.finish), flat, hosts] {
      if (before) before();
      unpack(flat.tensor, hosts);
    };
  }
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  constexpr const char* kTitle = "dunlin:reduce";
  const Tensor& tensor = only(tensors, kTitle);
  check_root(options.rootRank, kTitle);
  const int root = static_cast<int>(options.rootRank);
  Plan plan{.type = OpType::REDUCE, .title = kTitle, .inputs = {tensor}, .outputs = {tensor}};
  if (!is_bitwise(options.reduceOp)) run_on(plan, gpu_of(tensor));
  const Tensor used = root == getRank() ? plan.staging.in_out(tensor) : plan.staging.in(tensor);
  if (is_bitwise(options.reduceOp)) {
    plan_all_bits(plan, used, options.reduceOp, root == getRank() ? &used : nullptr);
    return start(std::move(plan), options.timeout);
  }
  const Reduction reduction = reduction_of(used, options.reduceOp, kTitle);
  const Tensor input = scaled(used, options.reduceOp, kTitle);
  plan.held = {input};
  plan.calls = {reduce_call(Collective::kReduce, input, used, count(used), reduction, root)};
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
  if (!is_bitwise(options.reduceOp)) run_on(plan, gpu_of({&inputs, &outputs}));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(outputs[i], kTitle);
    check_types({inputs[i]}, outputs[i], kTitle);
    TORCH_CHECK(count(inputs[i]) == members() * count(outputs[i]), kTitle, ": an input of ",
                inputs[i].numel(), " elements for ", getSize(), " outputs of ", outputs[i].numel());
    const Tensor host = plan.staging.in(inputs[i]);
    plan_reduce_scatter(plan, host, options.reduceOp, plan.staging.out(outputs[i]));
  }
  return start(std::move(plan), options.timeout);
}

void Group::plan_reduce_scatter(Plan& plan, const Tensor& input, const c10d::ReduceOp& op,
                                const Tensor& output) {
  if (is_bitwise(op)) return plan_scattered_bits(plan, input, op, output);
  const Reduction reduction = reduction_of(output, op, plan.title);
  const auto call_on = [&](const Tensor& used) {
    return reduce_call(Collective::kReduceScatter, used, output, count(output), reduction);
  };
  const Tensor factored = scaled(input, op, plan.title);
  const Tensor used = can_be_made(call_on(factored)) ? factored : factored.clone();
  plan.held.push_back(used);
  plan.calls.push_back(call_on(used));
}

Group::Pending Group::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                     const c10d::ReduceScatterOptions& options) {
  constexpr const char* kTitle = "dunlin:reduce_scatter";
  const Tensor& output = only(outputs, kTitle);
  check_lists(inputs.size(), kTitle);
  TORCH_CHECK(inputs[0].size() == members(), kTitle, ": ", inputs[0].size(), " inputs for ",
              getSize(), " ranks");
  GpuHandle gpu;
  if (!is_bitwise(options.reduceOp)) gpu = gpu_of({&outputs, &inputs[0]});
  if (gpu || !are_even(inputs[0]))
    return reduce_scatter_by_rank(output, inputs[0], std::move(gpu), options);
  for (const Tensor& input : inputs[0]) check_like(input, output, kTitle);
  Plan plan{
      .type = OpType::REDUCE_SCATTER, .title = kTitle, .inputs = inputs[0], .outputs = {output}};
  const Tensors hosts = plan.staging.in(inputs[0]);
  const Flat flat = flat_of(hosts);
  plan.held = {flat.tensor};
  if (flat.is_copy) pack(hosts, flat.tensor);
  const Tensor all = at::from_blob(flat.tensor.data_ptr(), {getSize() * output.numel()},
                                   at::TensorOptions(output.scalar_type()));
  plan_reduce_scatter(plan, all, options.reduceOp, plan.staging.out(output));
  return start(std::move(plan), options.timeout);
}

// All ranks have the same sizes, so all of them come here.
Group::Pending Group::reduce_scatter_by_rank(const Tensor& output, const Tensors& inputs,
                                             GpuHandle gpu,
                                             const c10d::ReduceScatterOptions& options) {
  Plan plan{.type = OpType::REDUCE_SCATTER,
            .title = "dunlin:reduce_scatter",
            .inputs = inputs,
            .outputs = {output}};
  check_types(inputs, output, plan.title);
  check_like(inputs[static_cast<std::size_t>(getRank())], output, plan.title);
  run_on(plan, std::move(gpu));
  const Tensors parts = plan.staging.in(inputs);
  const Tensor target = plan.staging.out(output);
  if (is_bitwise(options.reduceOp)) {
    check_bits(target, plan.title);
    const Tensor rows =
        at::empty({getSize(), target.numel()}, at::TensorOptions(target.scalar_type()));
    plan.held = {rows};
    plan_exchange(plan, rows.unbind(), parts);
    plan.finish = [rows, op = options.reduceOp, target, count = members()] {
      fold_bits(rows, count, op, target);
    };
    return start(std::move(plan), options.timeout);
  }
  const Reduction reduction = reduction_of(target, options.reduceOp, plan.title);
  // This rank's result is written before later parts are read.
  const Tensors unharmed = apart_from(target, parts, getRank());
  for (int root = 0; root < getSize(); ++root) {
    const Tensor part =
        scaled(unharmed[static_cast<std::size_t>(root)], options.reduceOp, plan.title);
    plan.held.push_back(part);
    plan.calls.push_back(reduce_call(Collective::kReduce, part, root == getRank() ? target : part,
                                     count(part), reduction, root));
  }
  return start(std::move(plan), options.timeout);
}

}  // namespace dunlin::torch_backend
