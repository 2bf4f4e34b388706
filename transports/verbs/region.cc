#include "transports/verbs/region.h"

#include <algorithm>
#include <utility>

#include "runtime/log.h"

namespace dunlin::transport::verbs {

Result<std::unique_ptr<TransportRegion>> VerbsRegion::create(Engine& engine,
                                                             std::shared_ptr<MemoryRegion> memory) {
  std::unique_ptr<VerbsRegion> region(new VerbsRegion(engine, std::move(memory)));
  const bool is_hosts = region->memory_->kind() == MemoryKind::kHost;
  DUNLIN_TRY(is_hosts ? region->register_host() : region->register_gpu());
  return std::unique_ptr<TransportRegion>(std::move(region));
}

VerbsRegion::VerbsRegion(Engine& engine, std::shared_ptr<MemoryRegion> memory)
    : engine_(engine), memory_(std::move(memory)), id_(engine.next_region()) {}

Status VerbsRegion::register_host() {
  RegisteredMemory made;
  made.memory = memory_;
  DUNLIN_ASSIGN(made.key, MemoryKey::create(engine_.port(0).domain(), *memory_));
  for (std::size_t port = 1; port < engine_.ports(); ++port) {
    DUNLIN_ASSIGN(auto key, MemoryKey::create(engine_.port(port).domain(), *memory_));
    made.rail_keys.push_back(std::move(key));
  }
  host_ = std::move(made);
  return Status::ok();
}

Status VerbsRegion::register_gpu() {
  const TransportContext& context = engine_.context();
  DomainRegistrar registrar(engine_.port(0).domain());
  DUNLIN_ASSIGN(gpu_, GpuMemory::create(registrar, memory_, context.config.verbs_gpu, context.clock,
                                        context.config.deadline));
  DUNLIN_INFO("verbs: {} bytes of GPU {} by {}{}{}", memory_->size(), memory_->gpu_device(),
              to_string(gpu_->way()), gpu_->refusals().empty() ? "" : "; ", gpu_->refusals());
  engine_.add_gpu_memory(id_, *gpu_);
  return Status::ok();
}

VerbsRegion::~VerbsRegion() {
  if (target().key == nullptr) return;  // was never registered
  if (gpu_) engine_.remove_gpu_memory(id_);
  engine_.revoke(id_);
  const bool is_stuck = gpu_ && gpu_->is_stuck();
  if (is_stuck) {
    engine_.keep(gpu_->release_local());
    engine_.keep(gpu_->release_target());
  } else if (memory_->is_owned()) {
    engine_.quarantine(gpu_ ? gpu_->release_target() : std::move(host_));
  }
}

PortKeys VerbsRegion::local_keys() const {
  PortKeys keys{local_key()};
  for (std::size_t i = 0; i < host_.rail_keys.size(); ++i)
    keys[i + 1] = host_.rail_keys[i]->local();
  return keys;
}

Bytes VerbsRegion::descriptor() const {
  VerbsDescriptor descriptor;
  descriptor.id = id_;
  descriptor.address = reinterpret_cast<std::uintptr_t>(target().memory->data());
  descriptor.keys.push_back(target().key->remote());
  for (const auto& key : host_.rail_keys) descriptor.keys.push_back(key->remote());
  if (gpu_) {
    descriptor.wants_landings = gpu_->wants_landings();
    descriptor.is_shadow = gpu_->is_staged();
    descriptor.gpu = static_cast<std::uint32_t>(memory_->gpu_device());
  }
  return descriptor.encode();
}

Result<std::unique_ptr<RemoteRegion>> VerbsRemoteRegion::import(
    const Link& link, Connection& connection, std::span<const std::byte> descriptor,
    std::size_t size) {
  auto decoded = VerbsDescriptor::decode(descriptor);
  if (!decoded) return std::move(decoded).status().with_peer(link.peer());
  std::unique_ptr<VerbsRemoteRegion> region(
      new VerbsRemoteRegion(link, connection.imports, decoded->id, size));
  region->address_ = decoded->address;
  std::ranges::copy(decoded->keys, region->keys_.begin());
  region->wants_landings_ = decoded->wants_landings;
  region->is_shadow_ = decoded->is_shadow;
  region->is_on_gpu_ = decoded->gpu.has_value();
  region->gpu_ = decoded->gpu.value_or(0);
  return std::unique_ptr<RemoteRegion>(std::move(region));
}

}  // namespace dunlin::transport::verbs
