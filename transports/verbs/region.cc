#include "transports/verbs/region.h"

#include <utility>

#include "runtime/log.h"

namespace dunlin::transport::verbs {
namespace {

// Of a descriptor.
constexpr std::uint8_t kWantsLandings = 1;
constexpr std::uint8_t kIsShadow = 2;

}  // namespace

Result<std::unique_ptr<TransportRegion>> VerbsRegion::create(Engine& engine,
                                                             std::shared_ptr<MemoryRegion> memory) {
  std::unique_ptr<VerbsRegion> region(new VerbsRegion(engine, std::move(memory)));
  DUNLIN_TRY(region->register_memory());
  return std::unique_ptr<TransportRegion>(std::move(region));
}

VerbsRegion::VerbsRegion(Engine& engine, std::shared_ptr<MemoryRegion> memory)
    : engine_(engine), memory_(std::move(memory)), id_(engine.next_region()) {}

Status VerbsRegion::register_memory() {
  if (memory_->kind() == MemoryKind::kHost) {
    DUNLIN_ASSIGN(host_.key, MemoryKey::create(engine_.domain(), *memory_));
    host_.memory = memory_;
    return Status::ok();
  }
  const TransportContext& context = engine_.context();
  DomainRegistrar registrar(engine_.domain());
  DUNLIN_ASSIGN(gpu_, GpuMemory::create(registrar, memory_, context.config.verbs_gpu, context.clock,
                                        context.config.deadline));
  DUNLIN_INFO("verbs: {} bytes of GPU {} by {}{}{}", memory_->size(), memory_->gpu_device(),
              to_string(gpu_->way()), gpu_->refusals().empty() ? "" : "; ", gpu_->refusals());
  engine_.add_gpu_memory(id_, *gpu_);
  return Status::ok();
}

VerbsRegion::~VerbsRegion() {
  if (target().key == nullptr) return;  // was never registered
  if (gpu_) {
    engine_.remove_gpu_memory(id_);
    if (gpu_->is_staged()) engine_.quarantine(gpu_->release_local());
  }
  engine_.revoke(id_, gpu_ ? gpu_->release_target() : std::move(host_));
}

std::uint64_t VerbsRegion::local_address(const LocalSlice& slice) const {
  return reinterpret_cast<std::uint64_t>(local().memory->data() + (slice.data() - memory_->data()));
}

Bytes VerbsRegion::descriptor() const {
  std::uint8_t flags = 0;
  if (gpu_ && gpu_->wants_landings()) flags |= kWantsLandings;
  if (gpu_ && gpu_->is_staged()) flags |= kIsShadow;
  ByteWriter writer;
  writer.number(id_).number(reinterpret_cast<std::uint64_t>(target().memory->data()));
  writer.number(target().key->remote()).number(flags);
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
  region->key_ = reader.number<std::uint32_t>();
  const auto flags = reader.number<std::uint8_t>();
  region->wants_landings_ = (flags & kWantsLandings) != 0;
  region->is_shadow_ = (flags & kIsShadow) != 0;
  if (!reader.at_end() || id == 0) {
    return Status(Code::kCorrupted, "malformed verbs region descriptor").with_peer(link.peer());
  }
  return std::unique_ptr<RemoteRegion>(std::move(region));
}

}  // namespace dunlin::transport::verbs
