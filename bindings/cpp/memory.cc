#include <dunlin/memory.h>

#include <fmt/format.h>

#include <string>
#include <utility>

#include "bindings/cpp/internal.h"
#include "runtime/gpu/cuda_driver.h"

namespace dunlin {
namespace {

std::string key_of(std::string_view name, Rank owner) {
  return fmt::format("dunlin::Memory/{}/{}", name, owner.value());
}

}  // namespace

Result<MemorySlice> MemorySlice::slice(std::size_t offset, std::size_t size) const {
  DUNLIN_ASSIGN(const auto part, Internal::internal(*this).slice(offset, size));
  return Internal::external(part);
}

Result<RemoteMemorySlice> RemoteMemorySlice::slice(std::size_t offset, std::size_t size) const {
  DUNLIN_ASSIGN(const auto part, Internal::internal(*this).slice(offset, size));
  return Internal::external(part);
}

struct Memory::Impl {
  std::shared_ptr<JobState> job;
  std::unique_ptr<transport::LocalRegion> region;
};

Memory::Memory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Memory::Memory(Memory&&) noexcept = default;
Memory& Memory::operator=(Memory&&) noexcept = default;
Memory::~Memory() = default;

Result<Memory> Memory::allocate(Job& job, std::size_t size) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  DUNLIN_ASSIGN(impl->region, impl->job->fabric->allocate(size));
  return Memory(std::move(impl));
}

Result<Memory> Memory::wrap(Job& job, void* data, std::size_t size) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  DUNLIN_ASSIGN(auto memory, MemoryRegion::wrap(data, size));
  DUNLIN_ASSIGN(impl->region, impl->job->fabric->register_memory(std::move(memory)));
  return Memory(std::move(impl));
}

Result<Memory> Memory::wrap_gpu(Job& job, void* data, std::size_t size) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  DUNLIN_ASSIGN(auto driver, load_cuda_driver());
  DUNLIN_ASSIGN(auto memory, MemoryRegion::wrap(data, size, std::move(driver)));
  DUNLIN_ASSIGN(impl->region, impl->job->fabric->register_memory(std::move(memory)));
  return Memory(std::move(impl));
}

std::byte* Memory::data() const {
  return impl_->region->data();
}

std::size_t Memory::size() const {
  return impl_->region->size();
}

Result<MemorySlice> Memory::slice(std::size_t offset, std::size_t size) const {
  return whole().slice(offset, size);
}

MemorySlice Memory::whole() const {
  return Internal::external(impl_->region->whole());
}

Status Memory::share(std::string_view name) const {
  Bootstrap& bootstrap = *impl_->job->bootstrap;
  return bootstrap.publish(key_of(name, bootstrap.rank()), descriptor());
}

Bytes Memory::descriptor() const {
  return impl_->region->descriptor();
}

struct RemoteMemory::Impl {
  std::shared_ptr<JobState> job;
  Rank peer;
  std::unique_ptr<transport::RemoteRegion> region;
};

RemoteMemory::RemoteMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RemoteMemory::RemoteMemory(RemoteMemory&&) noexcept = default;
RemoteMemory& RemoteMemory::operator=(RemoteMemory&&) noexcept = default;
RemoteMemory::~RemoteMemory() = default;

Result<RemoteMemory> RemoteMemory::open(Job& job, Rank peer, std::string_view name,
                                        Duration timeout) {
  DUNLIN_ASSIGN(const Bytes descriptor, job.lookup_from(peer, key_of(name, peer), timeout));
  return import(job, peer, descriptor);
}

Result<RemoteMemory> RemoteMemory::import(Job& job, Rank peer,
                                          std::span<const std::byte> descriptor) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  impl->peer = peer;
  DUNLIN_ASSIGN(impl->region, impl->job->fabric->import_region(peer, descriptor));
  return RemoteMemory(std::move(impl));
}

Rank RemoteMemory::peer() const {
  return impl_->peer;
}

std::size_t RemoteMemory::size() const {
  return impl_->region->size();
}

Result<RemoteMemorySlice> RemoteMemory::slice(std::size_t offset, std::size_t size) const {
  return whole().slice(offset, size);
}

RemoteMemorySlice RemoteMemory::whole() const {
  return Internal::external(impl_->region->whole());
}

std::byte* RemoteMemory::mapped() const {
  return impl_->region->mapped();
}

}  // namespace dunlin
