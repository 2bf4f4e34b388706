#include "collectives/communicator/plan.h"

namespace dunlin::collective {

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
    std::byte* const mapped = region.mapped();
    buffer = {&region, offset, mapped == nullptr ? nullptr : mapped + offset};
  }
}

}  // namespace dunlin::collective
