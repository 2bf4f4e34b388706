#include "collectives/communicator/plan.h"

#include <algorithm>

namespace dunlin::collective {

std::shared_ptr<Plan> PlanCache::find(const PlanKey& key) {
  const auto found = plans_.find(key);
  if (found == plans_.end()) return nullptr;
  found->second.last_use = ++uses_;
  return found->second.plan;
}

void PlanCache::insert(std::shared_ptr<Plan> plan) {
  if (plans_.size() >= kMostPlans) {
    plans_.erase(std::ranges::min_element(plans_, {},
                                          [](const auto& entry) { return entry.second.last_use; }));
  }
  const PlanKey key = plan->key;
  plans_.emplace(key, Entry{std::move(plan), ++uses_});
}

std::vector<DirectBytes> direct_bytes_of(const Program& program, std::size_t element,
                                         const std::vector<ExecutorPeer*>& peers) {
  std::vector<DirectBytes> all(peers.size());
  for (const Step& step : program.steps) {
    if (step.kind != StepKind::kReduce) continue;
    for (const Operand& operand : program.inputs(step)) {
      if (operand.peer != kSelf)
        all[static_cast<std::size_t>(operand.peer)].got += step.count * element;
    }
    for (const Operand& operand : program.targets(step)) {
      if (operand.peer != kSelf)
        all[static_cast<std::size_t>(operand.peer)].put += step.count * element;
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) all[i].peer = peers[i]->rank;
  std::erase_if(all, [](const DirectBytes& each) { return each.put + each.got == 0; });
  return all;
}

void place(Plan& plan, std::uint64_t turn, BufferKind kind, const Placement& placement) {
  auto& buffers = plan.buffers[turn];
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    PeerBuffer& buffer = buffers[i][static_cast<std::size_t>(kind)];
    if (placement.window == nullptr) {
      buffer = {};
      continue;
    }
    const int member = plan.program.peers[i];
    const transport::RemoteRegion& region =
        *placement.window->remote[static_cast<std::size_t>(member)];
    const std::size_t offset = Window::base(member) + placement.at(member);
    std::byte* const mapped = placement.window->mapped(member);
    buffer = {&region, offset, mapped == nullptr ? nullptr : mapped + offset};
  }
}

}  // namespace dunlin::collective
