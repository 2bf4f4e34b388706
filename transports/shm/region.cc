#include "transports/shm/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/bootstrap/printable.h"
#include "runtime/gpu/cuda_driver.h"
#include "transports/shm/process_memory.h"

namespace dunlin::transport::shm {
namespace {

std::uint64_t inode_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

Status malformed(const Link& link) {
  return Status(Code::kCorrupted, "malformed shm region descriptor").with_peer(link.peer());
}

}  // namespace

ShmRegion::ShmRegion(std::shared_ptr<MemoryRegion> memory, SegmentLayout& layout,
                     RetiredMemory& retired, std::uint32_t place, std::uint64_t generation,
                     bool allows_system_calls)
    : memory_(std::move(memory)),
      layout_(layout),
      retired_(retired),
      place_(place),
      generation_(generation),
      allows_system_calls_(allows_system_calls) {
  layout_.generations[place_].store(generation_, std::memory_order_release);
}

ShmRegion::~ShmRegion() {
  // Before the reads of the openings (openings.h).
  layout_.generations[place_].store(0);
  if (memory_->kind() == MemoryKind::kCuda && memory_->is_owned())
    retired_.add(std::move(memory_), generation_);
}

namespace {

enum class DescriptorKind : std::uint8_t { kHost, kGpu, kUnshared, kPrivate };

void write_gpu(ByteWriter& writer, const MemoryRegion& memory) {
  GpuDriver& driver = *memory.gpu();
  auto allocation = driver.find(memory.data());
  Status status = allocation.status();
  if (status.is_ok() && !allocation->has_value())
    status = Status(Code::kNotFound, "the memory was freed");
  if (status.is_ok()) {
    const GpuAllocation& whole = **allocation;
    auto shared = driver.share(whole.device, whole.base);
    if (shared) {
      writer.number(static_cast<std::uint8_t>(DescriptorKind::kGpu));
      writer.blob(std::as_bytes(std::span(&*shared, 1)));
      writer.number(static_cast<std::uint64_t>(memory.data() - whole.base));
      writer.number(static_cast<std::uint8_t>(memory.is_owned()));
      return;
    }
    status = std::move(shared).status();
  }
  writer.number(static_cast<std::uint8_t>(DescriptorKind::kUnshared)).text(status.message());
}

}  // namespace

Bytes ShmRegion::descriptor() const {
  ByteWriter writer;
  writer.number(place_).number(generation_);
  if (memory_->kind() == MemoryKind::kCuda) {
    write_gpu(writer, *memory_);
  } else if (memory_->fd() < 0 && allows_system_calls_) {
    allow_process_memory_access();
    writer.number(static_cast<std::uint8_t>(DescriptorKind::kPrivate));
    writer.number(std::uint64_t{reinterpret_cast<std::uintptr_t>(memory_->data())});
  } else {
    writer.number(static_cast<std::uint8_t>(DescriptorKind::kHost));
    writer.number(std::int32_t{memory_->fd()}).number(inode_of(memory_->fd()));
    writer.number(std::uint64_t{memory_->fd_offset()});
  }
  return writer.take();
}

Result<std::shared_ptr<GpuDriver>> ShmIndirect::driver() {
  if (driver_ == nullptr) {
    DUNLIN_ASSIGN(driver_, load_cuda_driver());
  }
  return driver_;
}

Result<std::unique_ptr<RemoteRegion>> ShmRemoteRegion::import(const Link& link, int pid,
                                                              const PeerSegment& segment,
                                                              std::span<const std::byte> descriptor,
                                                              std::size_t size,
                                                              ShmIndirect& indirect) {
  ByteReader reader(descriptor);
  const auto place = reader.number<std::uint32_t>();
  const auto generation = reader.number<std::uint64_t>();
  const auto kind = static_cast<DescriptorKind>(reader.number<std::uint8_t>());
  if (!reader.ok() || place >= kMaxRegions || kind > DescriptorKind::kPrivate)
    return malformed(link);
  std::unique_ptr<ShmRemoteRegion> region(new ShmRemoteRegion(link, size, place, generation));
  switch (kind) {
    case DescriptorKind::kHost:
      DUNLIN_TRY(region->map_host(link, pid, segment, reader, size));
      break;
    case DescriptorKind::kGpu:
      DUNLIN_TRY(region->open_gpu(link, segment, reader, size, indirect));
      break;
    case DescriptorKind::kPrivate:
      DUNLIN_TRY(region->reach_private(link, pid, reader, size, indirect));
      break;
    case DescriptorKind::kUnshared:
      return Status(Code::kUnavailable,
                    fmt::format("other processes cannot open this GPU memory: {}",
                                bootstrap::printable(reader.text())))
          .with_peer(link.peer());
  }
  return std::unique_ptr<RemoteRegion>(std::move(region));
}

Status ShmRemoteRegion::map_host(const Link& link, int pid, const PeerSegment& segment,
                                 ByteReader& reader, std::size_t size) {
  const auto fd = reader.number<std::int32_t>();
  const auto inode = reader.number<std::uint64_t>();
  const auto offset = reader.number<std::uint64_t>();
  if (!reader.at_end()) return malformed(link);
  if (fd < 0) {
    return Status(
               Code::kUnavailable,
               "the peer does not let other processes access memory that Dunlin did not allocate "
               "(DUNLIN_SHM_CMA=off, or private memory)")
        .with_peer(link.peer());
  }
  DUNLIN_ASSIGN(const int opened, open_descriptor_of(pid, fd, O_RDWR));
  // The owner may have freed this part of the file since, or closed the file, and its descriptor's
  // number may belong to another file now.
  if (inode_of(opened) != inode || !segment.is_registered(place_, generation_)) {
    close(opened);
    return Status(Code::kNotFound, "the peer has deregistered the region").with_peer(link.peer());
  }
  DUNLIN_ASSIGN(memory_, MemoryRegion::map(opened, size, offset));
  data_ = memory_->data();
  return Status::ok();
}

Status ShmRemoteRegion::reach_private(const Link& link, int pid, ByteReader& reader,
                                      std::size_t size, ShmIndirect& indirect) {
  const auto address = reader.number<std::uint64_t>();
  if (!reader.at_end() || size > std::numeric_limits<std::uint64_t>::max() - address)
    return malformed(link);
  data_ = reinterpret_cast<std::byte*>(address);
  if (pid == getpid()) return Status::ok();
  is_unmapped_ = true;
  indirect.is_used = true;
  if (size == 0) return Status::ok();
  return check_process_memory(pid, address).with_peer(link.peer());
}

Status ShmRemoteRegion::open_gpu(const Link& link, const PeerSegment& segment, ByteReader& reader,
                                 std::size_t size, ShmIndirect& indirect) {
  const std::span<const std::byte> shared = reader.blob();
  const auto offset = reader.number<std::uint64_t>();
  const bool is_owned = reader.number<std::uint8_t>() != 0;
  if (shared.size() == sizeof shared_) std::memcpy(&shared_, shared.data(), shared.size());
  if (!reader.at_end() || shared.size() != sizeof shared_ || offset > shared_.size ||
      size > shared_.size - offset)
    return malformed(link);
  DUNLIN_ASSIGN(auto driver, indirect.driver());
  const auto& devices = driver->devices();
  const std::string_view bus(shared_.pci_bus_id.data(),
                             strnlen(shared_.pci_bus_id.data(), shared_.pci_bus_id.size()));
  const auto device = std::find_if(devices.begin(), devices.end(),
                                   [&](const GpuDevice& each) { return each.pci_bus_id == bus; });
  if (device == devices.end()) {
    return Status(Code::kUnavailable,
                  fmt::format("the memory is on GPU {}, which this process cannot see "
                              "(CUDA_VISIBLE_DEVICES)",
                              bootstrap::printable(bus)))
        .with_peer(link.peer());
  }
  if (is_owned) {
    auto recorded = segment.record_opening(place_, generation_);
    if (!recorded) return std::move(recorded).status().with_peer(link.peer());
    opening_ = std::move(recorded).value();
  }
  auto opened = driver->open(device->number, shared_);
  if (!opened) return std::move(opened).status().with_peer(link.peer());
  gpu_device_ = device->number;
  gpu_ = std::move(driver);
  data_ = *opened + offset;
  indirect.is_used = true;
  return Status::ok();
}

ShmRemoteRegion::~ShmRemoteRegion() {
  if (gpu_ == nullptr) return;
  const bool is_closed = gpu_->close(gpu_device_, shared_);  // before opening_ ends
  if (!is_closed && opening_) opening_->keep();
}

}  // namespace dunlin::transport::shm
