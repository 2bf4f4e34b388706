// The group's calls that move data without combining them (group.h).
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bindings/c10d/calls.h"
#include "bindings/c10d/group.h"

namespace dunlin::torch_backend {

using c10d::OpType;
using collective::Collective;

namespace {

void copy_elements(const at::Tensor& from, const at::Tensor& to) {
  if (from.numel() > 0) std::memmove(to.data_ptr(), from.data_ptr(), bytes(from));
}

}  // namespace

Group::Pending Group::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  constexpr const char* kTitle = "dunlin:broadcast";
  const Tensor& tensor = only(tensors, kTitle);
  check_root(options.rootRank, kTitle);
  const int root = static_cast<int>(options.rootRank);
  Plan plan{.type = OpType::BROADCAST, .title = kTitle, .inputs = {tensor}, .outputs = {tensor}};
  run_on(plan, gpu_of(tensor));
  const Tensor used = getRank() == root ? plan.staging.in(tensor) : plan.staging.out(tensor);
  plan.calls = {move_call(Collective::kBroadcast, used, used, bytes(used), root)};
  return start(std::move(plan), options.timeout);
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
  run_on(plan, gpu_of({&inputs, &outputs}));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i], kTitle);
    check_types({outputs[i]}, inputs[i], kTitle);
    TORCH_CHECK(count(outputs[i]) == members() * count(inputs[i]), kTitle, ": an output of ",
                outputs[i].numel(), " elements for ", getSize(), " inputs of ", inputs[i].numel());
    plan_gather(plan, plan.staging.in(inputs[i]), plan.staging.out(outputs[i]));
  }
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::allgather(TensorLists& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "dunlin:all_gather";
  check_lists(outputs.size(), kTitle);
  const Tensor& input = only(inputs, kTitle);
  if (GpuHandle gpu = gpu_of({&outputs[0], &inputs}))
    return allgather_on_gpu(outputs[0], input, std::move(gpu), options.timeout);
  if (!outputs[0].empty() && !are_even(outputs[0]))
    return allgather_uneven(outputs[0], input, options.timeout);
  return allgather_coalesced(outputs, inputs, options);
}

Group::Pending Group::allgather_on_gpu(const Tensors& outputs, const Tensor& input, GpuHandle gpu,
                                       Milliseconds timeout) {
  Plan plan{.type = OpType::ALLGATHER,
            .title = "dunlin:all_gather",
            .inputs = {input},
            .outputs = outputs};
  TORCH_CHECK(outputs.size() == members(), plan.title, ": a list of ", outputs.size(),
              " tensors, not ", getSize());
  check_types(outputs, input, plan.title);
  check_like(outputs[static_cast<std::size_t>(getRank())], input, plan.title);
  run_on(plan, std::move(gpu));
  // The broadcasts before this rank's own write to their outputs.
  const Tensor staged = plan.staging.in(input);
  const bool is_overwritten =
      std::any_of(outputs.begin(), outputs.begin() + getRank(),
                  [&](const Tensor& output) { return overlap(output, staged); });
  const Tensor own = is_overwritten ? staged.clone() : staged;
  plan.held.push_back(own);
  for (int root = 0; root < getSize(); ++root) {
    const Tensor output = plan.staging.out(outputs[static_cast<std::size_t>(root)]);
    plan.calls.push_back(move_call(Collective::kBroadcast, root == getRank() ? own : output, output,
                                   bytes(output), root));
  }
  return start(std::move(plan), timeout);
}

// All ranks have the same list, so all of them come here.
Group::Pending Group::allgather_uneven(const Tensors& outputs, const Tensor& input,
                                       Milliseconds timeout) {
  Plan plan{.type = OpType::ALLGATHER,
            .title = "dunlin:all_gather",
            .inputs = {input},
            .outputs = outputs};
  TORCH_CHECK(outputs.size() == members(), plan.title, ": a list of ", outputs.size(),
              " tensors, not ", getSize());
  check_types(outputs, input, plan.title);
  check_like(outputs[static_cast<std::size_t>(getRank())], input, plan.title);
  const Tensors targets = plan.staging.out(outputs);
  const Tensor& own = targets[static_cast<std::size_t>(getRank())];
  Tensor host = plan.staging.in(input);
  // The own part is copied before the others are sent.
  if (overlap(own, host) && own.data_ptr() != host.data_ptr()) host = host.clone();
  plan.held = {host};
  plan_exchange(plan, targets, Tensors(members(), host));
  return start(std::move(plan), timeout);
}

// There may be any number of inputs. outputs[i][r] is rank r's inputs[i]; in the order of
// torch.distributed.all_gather_coalesced, it is outputs[r][i].
Group::Pending Group::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "dunlin:all_gather";
  const bool is_by_rank = inputs.size() != 1 || outputs.size() != 1;
  Plan plan{.type = OpType::ALLGATHER, .title = kTitle, .inputs = inputs};
  if (is_by_rank) {
    TORCH_CHECK(outputs.size() == members(), kTitle, ": ", outputs.size(), " lists for ", getSize(),
                " ranks");
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
    plan.outputs.insert(plan.outputs.end(), targets.begin(), targets.end());
    targets = plan.staging.out(targets);
    const Flat flat = flat_of(targets);
    plan_gather(plan, plan.staging.in(inputs[i]), flat.tensor);
    plan.held.push_back(flat.tensor);
    if (flat.is_copy) copies.emplace_back(flat.tensor, std::move(targets));
  }
  plan.finish = [copies = std::move(copies)] {
    for (const auto& [flat, targets] : copies) unpack(flat, targets);
  };
  return start(std::move(plan), options.timeout);
}

void Group::plan_gather(Plan& plan, const Tensor& input, const Tensor& output) const {
  const auto call_on = [&](const Tensor& used) {
    return move_call(Collective::kAllGather, used, output, bytes(used));
  };
  const Tensor used = can_be_made(call_on(input)) ? input : input.clone();
  plan.held.push_back(used);
  plan.calls.push_back(call_on(used));
}

void Group::plan_exchange(Plan& plan, const Tensors& outputs, const Tensors& inputs) const {
  plan.topic = member_->name() + "/exchange";
  for (int rank = 0; rank < getSize(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    if (rank != getRank()) {
      if (!inputs.empty()) plan.messages.push_back({rank, inputs[place], true});
      if (!outputs.empty()) plan.messages.push_back({rank, outputs[place], false});
    } else if (!inputs.empty() && !outputs.empty()) {
      check_like(outputs[place], inputs[place], plan.title);
      copy_elements(inputs[place], outputs[place]);
    }
  }
}

void Group::plan_exchange_with_root(Plan& plan, Way way, int64_t root, const Tensor& own,
                                    const TensorLists& lists) const {
  check_root(root, plan.title);
  const bool is_to_root = way == Way::kToRoot;
  const char* const what = is_to_root ? "outputs" : "inputs";
  if (getRank() != root) {
    TORCH_CHECK(lists.empty(), plan.title, ": only the root may give ", what);
  } else {
    check_lists(lists.size(), plan.title);
    TORCH_CHECK(lists[0].size() == members(), plan.title, ": ", lists[0].size(), " ", what, " for ",
                getSize(), " ranks");
    for (const Tensor& part : lists[0]) check_like(part, own, plan.title);
  }
  (is_to_root ? plan.inputs : plan.outputs) = {own};
  const Tensor host = is_to_root ? plan.staging.in(own) : plan.staging.out(own);
  if (getRank() != root) {
    plan_exchange(plan, {}, {});
    plan.messages = {{static_cast<int>(root), host, is_to_root}};
    return;
  }
  (is_to_root ? plan.outputs : plan.inputs) = lists[0];
  const Tensors parts = is_to_root ? plan.staging.out(lists[0]) : plan.staging.in(lists[0]);
  // The root's own part is copied before the others are sent.
  if (!is_to_root) plan.held = apart_from(host, parts, getRank());
  is_to_root ? plan_exchange(plan, parts, {}) : plan_exchange(plan, {}, plan.held);
  const Tensor& own_part = parts[static_cast<std::size_t>(root)];
  is_to_root ? copy_elements(host, own_part) : copy_elements(own_part, host);
}

Group::Pending Group::gather(TensorLists& outputs, Tensors& inputs,
                             const c10d::GatherOptions& options) {
  Plan plan{.type = OpType::GATHER, .title = "dunlin:gather"};
  const Tensor& input = only(inputs, plan.title);
  plan_exchange_with_root(plan, Way::kToRoot, options.rootRank, input, outputs);
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::scatter(Tensors& outputs, TensorLists& inputs,
                              const c10d::ScatterOptions& options) {
  Plan plan{.type = OpType::SCATTER, .title = "dunlin:scatter"};
  const Tensor& output = only(outputs, plan.title);
  plan_exchange_with_root(plan, Way::kFromRoot, options.rootRank, output, inputs);
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::alltoall(Tensors& outputs, Tensors& inputs,
                               const c10d::AllToAllOptions& options) {
  constexpr const char* kTitle = "dunlin:all_to_all";
  TORCH_CHECK(outputs.size() == members() && inputs.size() == members(), kTitle, ": ",
              outputs.size(), " outputs and ", inputs.size(), " inputs for ", getSize(), " ranks");
  for (const Tensor& tensor : inputs) check(tensor, kTitle);
  for (const Tensor& tensor : outputs) check(tensor, kTitle);
  Plan plan{.type = OpType::ALLTOALL, .title = kTitle, .inputs = inputs, .outputs = outputs};
  const Tensors targets = plan.staging.out(outputs);
  // The own part is copied before the others are sent, and these before others are received.
  const Tensor& own = targets[static_cast<std::size_t>(getRank())];
  plan.held = apart_from(own, plan.staging.in(inputs), getRank());
  plan_exchange(plan, targets, plan.held);
  return start(std::move(plan), options.timeout);
}

Group::Pending Group::alltoall_base(Tensor& output, Tensor& input,
                                    std::vector<int64_t>& output_splits,
                                    std::vector<int64_t>& input_splits,
                                    const c10d::AllToAllOptions& options) {
  constexpr const char* kTitle = "dunlin:all_to_all_single";
  check(input, kTitle);
  check_types({output}, input, kTitle);
  const auto check_divisible = [&](const Tensor& tensor) {
    TORCH_CHECK(tensor.dim() > 0 && tensor.size(0) % getSize() == 0, kTitle,
                ": the first dimension isn't divisible by the ", getSize(), " ranks");
  };
  const auto parts_of = [&](const Tensor& tensor, const std::vector<int64_t>& splits) {
    if (!splits.empty()) {
      TORCH_CHECK(splits.size() == members(), kTitle, ": ", splits.size(), " split sizes for ",
                  getSize(), " ranks");
      return tensor.split_with_sizes(splits, 0);
    }
    check_divisible(tensor);
    return tensor.split_with_sizes(std::vector<int64_t>(members(), tensor.size(0) / getSize()), 0);
  };
  // The profiler's name for it is that of gloo and NCCL.
  Plan plan{.type = OpType::ALLTOALL_BASE,
            .title = "dunlin:all_to_all",
            .inputs = {input},
            .outputs = {output}};
  const bool is_even = output_splits.empty() && input_splits.empty();
  if (is_even) run_on(plan, gpu_of({&plan.inputs, &plan.outputs}));
  const Tensor to = plan.staging.out(output);
  Tensor from = plan.staging.in(input);
  if (overlap(to, from)) from = from.clone();
  plan.held = {from};
  if (is_even) {
    check_divisible(to);
    check_divisible(from);
    check_like(to, from, kTitle);
    plan.calls = {move_call(Collective::kAllToAll, from, to, bytes(from) / members())};
  } else {
    plan_exchange(plan, parts_of(to, output_splits), parts_of(from, input_splits));
  }
  return start(std::move(plan), options.timeout);
}

}  // namespace dunlin::torch_backend
