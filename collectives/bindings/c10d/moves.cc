// The group's calls that move data and combine none (group.h).
#include <c10/util/Exception.h>

#include <cstring>
#include <utility>

#include "collectives/bindings/c10d/calls.h"
#include "collectives/bindings/c10d/group.h"

namespace dunlin::torch_backend {

using c10d::OpType;
using collective::Collective;

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

}  // namespace dunlin::torch_backend
