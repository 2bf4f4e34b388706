// Regions of the shm transport: ShmRegion is an entry in this process's table of generations
// (segment.h), and ShmRemoteRegion is a peer's region, mapped here.
#pragma once

#include <cstdint>
#include <memory>

#include "transports/shm/segment.h"
#include "transports/transport.h"

namespace dunlin::transport::shm {

class ShmRegion final : public TransportRegion {
 public:
  // Memory without a file descriptor (wrapped memory) can be put from, but no peer can map it.
  ShmRegion(std::shared_ptr<MemoryRegion> memory, SegmentLayout& layout, std::uint32_t place,
            std::uint64_t generation);
  ~ShmRegion() override;
  std::string_view transport() const override { return "shm"; }
  Bytes descriptor() const override;

 private:
  std::shared_ptr<MemoryRegion> memory_;
  SegmentLayout& layout_;
  std::uint32_t place_;
  std::uint64_t generation_;
};

class ShmRemoteRegion final : public RemoteRegion {
 public:
  static Result<std::unique_ptr<RemoteRegion>> import(const Link& link, int pid,
                                                      std::span<const std::byte> descriptor,
                                                      std::size_t size);

  std::byte* data() const { return memory_->data(); }
  std::byte* mapped() const override { return data(); }
  std::uint32_t place() const { return place_; }
  std::uint64_t generation() const { return generation_; }

 private:
  ShmRemoteRegion(const Link& link, std::shared_ptr<MemoryRegion> memory, std::size_t size,
                  std::uint32_t place, std::uint64_t generation)
      : RemoteRegion(link, size),
        memory_(std::move(memory)),
        place_(place),
        generation_(generation) {}
  std::shared_ptr<MemoryRegion> memory_;
  std::uint32_t place_;
  std::uint64_t generation_;
};

}  // namespace dunlin::transport::shm
