#include "transports/verbs/region.h"

#include <utility>

#include "runtime/log.h"

namespace dunlin::transport::verbs {
namespace {

// Flags in the descriptor of a region.
constexpr std::uint8_t kWantsLandings = 1;
constexpr std::uint8_t kIsShadow = 2;
constexpr std::uint8_t kIsOnGpu = 4;

}  // namespace

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
  std::uint8_t flags = 0;
  if (gpu_) flags |= kIsOnGpu;
  if (gpu_ && gpu_->wants_landings()) flags |= kWantsLandings;
  if (gpu_ && gpu_->is_staged()) flags |= kIsShadow;
  ByteWriter writer;
  writer.number(id_).number(reinterpret_cast<std::uint64_t>(target().memory->data()));
  writer.number(target().key->remote()).number(flags);
  writer.number(static_cast<std::uint8_t>(host_.rail_keys.size()));
  for (const auto& key : host_.rail_keys) writer.number(key->remote());
  if (gpu_) writer.number(static_cast<std::uint32_t>(memory_->gpu_device()));
  return writer.take();
}

Result<std::unique_ptr<RemoteRegion>> VerbsRemoteRegion::import(
    const Link& link, Connection& connection, std::span<const std::byte> descriptor,
    std::size_t size) {
  ByteReader reader(descriptor);
  const auto id = reader.number<std::uint64_t>();
  std::unique_ptr<VerbsRemoteRegion> region(
      new VerbsRemoteRegion(link, connection.imports, id, size));
  region->address_ = reader.number<std::uint64_t>();
  region->keys_[0] = reader.number<std::uint32_t>();
  const auto flags = reader.number<std::uint8_t>();
  region->is_on_gpu_ = (flags & kIsOnGpu) != 0;
  region->wants_landings_ = (flags & kWantsLandings) != 0;
  region->is_shadow_ = (flags & kIsShadow) != 0;
  const std::size_t more = reader.number<std::uint8_t>();
  for (std::size_t port = 1; port <= more && port < kMostPorts; ++port)
    region->keys_[port] = reader.number<std::uint32_t>();
  if (region->is_on_gpu_) region->gpu_ = reader.number<std::uint32_t>();
  if (!reader.at_end() || id == 0) {
    return Status(Code::kCorrupted, "malformed region descriptor of verbs").with_peer(link.peer());
  }
  return std::unique_ptr<RemoteRegion>(std::move(region));
}

}  // namespace dunlin::transport::verbs
