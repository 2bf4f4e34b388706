#include "transports/shm/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <variant>

#include "runtime/bootstrap/printable.h"
#include "runtime/gpu/cuda_driver.h"
#include "transports/shm/process_memory.h"

namespace dunlin::transport::shm {
namespace {

std::uint64_t inode_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

ShmRegion::ShmRegion(std::shared_ptr<MemoryRegion> memory, std::optional<SharedGpuRegion> shared,
                     SegmentLayout& layout, RetiredMemory& retired, std::uint32_t place,
                     std::uint64_t generation, bool allows_system_calls, DescriptorServer* server)
    : memory_(std::move(memory)),
      shared_(shared),
      layout_(layout),
      retired_(retired),
      place_(place),
      generation_(generation),
      allows_system_calls_(allows_system_calls),
      server_(server) {
  if (server_ != nullptr && memory_->fd() >= 0) server_->offer(generation_, memory_->fd());
  layout_.generations[place_].store(generation_, std::memory_order_release);
}

ShmRegion::~ShmRegion() {
  // Before the reads of the openings (openings.h).
  layout_.generations[place_].store(0);
  if (server_ != nullptr) server_->withdraw(generation_);
  if (memory_->kind() == MemoryKind::kCuda && memory_->is_owned())
    retired_.add(std::move(memory_), generation_);
}

namespace {

// Exports memory as a range, once.
Status export_range(const MemoryRegion& memory, std::optional<ExportedGpuRange>& range) {
  if (range) return Status::ok();
  GpuRanges* const ranges = GpuRanges::of(*memory.gpu());
  if (ranges == nullptr) return {Code::kUnavailable, "the driver shares whole allocations only"};
  DUNLIN_ASSIGN(range, ranges->export_range(memory.gpu_device(), memory.data(), memory.size()));
  return Status::ok();
}

GpuPieces describe(const ExportedGpuRange& range) {
  allow_process_memory_access();  // peers need the same permission to duplicate descriptors
  GpuPieces described{range.pci_bus_id, range.offset, {}};
  for (std::size_t i = 0; i < range.descriptors.size(); ++i)
    described.pieces.push_back({range.descriptors[i].get(), range.sizes[i]});
  return described;
}

}  // namespace

Result<SharedGpuRegion> ShmRegion::share(const MemoryRegion& memory) {
  GpuDriver& driver = *memory.gpu();
  DUNLIN_ASSIGN(const auto found, driver.find(memory.data()));
  if (!found) {
    return Status(Code::kNotFound,
                  "cuPointerGetAttribute does not know the address: the memory was freed");
  }
  DUNLIN_ASSIGN(SharedGpuMemory allocation, driver.share(found->device, found->base));
  return SharedGpuRegion{allocation, static_cast<std::uint64_t>(memory.data() - found->base)};
}

void ShmRegion::describe_gpu(ShmDescriptor& descriptor) const {
  auto shared = shared_ ? Result<SharedGpuRegion>(*shared_) : share(*memory_);
  if (shared) {
    descriptor.memory = AllocatedGpuMemory{shared->allocation, shared->offset, memory_->is_owned()};
    return;
  }
  Status status = std::move(shared).status();
  if (status.code() == Code::kUnavailable && !allows_system_calls_) {
    status = Status(
        Code::kUnavailable,
        fmt::format("{}; DUNLIN_SHM_CMA=off keeps peers from its descriptors", status.message()));
  } else if (status.code() == Code::kUnavailable) {
    status = export_range(*memory_, range_);
    if (status.is_ok()) {
      descriptor.memory = describe(*range_);
      return;
    }
  }
  descriptor.memory = UnsharedMemory{std::string(status.message())};
}

Bytes ShmRegion::descriptor() const {
  ShmDescriptor descriptor;
  descriptor.place = place_;
  descriptor.generation = generation_;
  if (memory_->kind() == MemoryKind::kCuda) {
    describe_gpu(descriptor);
  } else if (memory_->fd() < 0 && allows_system_calls_) {
    allow_process_memory_access();
    if (server_ != nullptr) server_->offer_process_memory();
    descriptor.memory = PrivateMemory{reinterpret_cast<std::uintptr_t>(memory_->data())};
  } else {
    descriptor.memory = FileMemory{memory_->fd(), inode_of(memory_->fd()), memory_->fd_offset()};
  }
  return descriptor.encode();
}

Result<std::shared_ptr<GpuDriver>> ShmIndirect::driver() {
  if (driver_ == nullptr) {
    DUNLIN_ASSIGN(driver_, load_cuda_driver());
  }
  return driver_;
}

Result<std::unique_ptr<RemoteRegion>> ShmRemoteRegion::import(
    const Link& link, PeerProcess& process, const PeerSegment& segment,
    std::span<const std::byte> descriptor, std::size_t size, ShmIndirect& indirect) {
  auto decoded = ShmDescriptor::decode(descriptor, size);
  if (!decoded) return std::move(decoded).status().with_peer(link.peer());
  const auto* const gpu = std::get_if<AllocatedGpuMemory>(&decoded->memory);
  const auto* const range = std::get_if<GpuPieces>(&decoded->memory);
  if ((gpu != nullptr || range != nullptr) && process.is_foreign()) {
    // The table of openings names processes by their ids (openings.h).
    return Status(Code::kUnavailable,
                  "GPU memory is not shared between PID namespaces: give the containers one PID "
                  "namespace (--pid=host; in a pod, shareProcessNamespace)")
        .with_peer(link.peer());
  }
  if (const auto* const unshared = std::get_if<UnsharedMemory>(&decoded->memory)) {
    return Status(Code::kUnavailable, fmt::format("other processes cannot open this GPU memory: {}",
                                                  bootstrap::printable(unshared->why)))
        .with_peer(link.peer());
  }
  std::unique_ptr<ShmRemoteRegion> region(
      new ShmRemoteRegion(link, size, decoded->place, decoded->generation));
  if (const auto* const host = std::get_if<FileMemory>(&decoded->memory))
    DUNLIN_TRY(region->map_host(link, process, segment, *host, size));
  if (gpu != nullptr) DUNLIN_TRY(region->open_gpu(link, segment, *gpu, indirect));
  if (range != nullptr)
    DUNLIN_TRY(region->map_gpu_range(link, process.pid(), segment, *range, indirect));
  if (const auto* const hidden = std::get_if<PrivateMemory>(&decoded->memory))
    DUNLIN_TRY(region->reach_private(link, process, hidden->address, size, indirect));
  return std::unique_ptr<RemoteRegion>(std::move(region));
}

Status ShmRemoteRegion::map_host(const Link& link, PeerProcess& process, const PeerSegment& segment,
                                 const FileMemory& host, std::size_t size) {
  if (host.fd < 0) {
    return Status(
               Code::kUnavailable,
               "the peer does not let other processes access memory that Dunlin did not allocate "
               "(DUNLIN_SHM_CMA=off, or private memory)")
        .with_peer(link.peer());
  }
  auto opened = process.open(generation_, host.fd, O_RDWR);
  // A server offers a region for as long as it is registered.
  const bool is_withdrawn =
      process.is_foreign() && !opened && opened.status().code() == Code::kNotFound;
  if (!opened && !is_withdrawn) return std::move(opened).status();
  // The owner may have freed this part of the file since, or closed the file, and its descriptor's
  // number may belong to another file now.
  if (is_withdrawn || inode_of(opened->get()) != host.inode ||
      !segment.is_registered(place_, generation_)) {
    return Status(Code::kNotFound, "the peer has deregistered the region").with_peer(link.peer());
  }
  DUNLIN_ASSIGN(memory_, MemoryRegion::map(std::move(opened).value(), size, host.offset));
  data_ = memory_->data();
  return Status::ok();
}

Status ShmRemoteRegion::reach_private(const Link& link, PeerProcess& process, std::uint64_t address,
                                      std::size_t size, ShmIndirect& indirect) {
  data_ = reinterpret_cast<std::byte*>(address);
  if (process.pid() == getpid()) return Status::ok();
  is_unmapped_ = true;
  indirect.is_used = true;
  if (size == 0) return Status::ok();
  return process.check_memory(address).with_peer(link.peer());
}

namespace {

// The number, in this process, of the GPU that a peer's memory belongs to.
Result<int> device_of(const Link& link, const GpuDriver& driver, std::string_view bus) {
  for (const GpuDevice& device : driver.devices()) {
    if (device.pci_bus_id == bus) return device.number;
  }
  return Status(Code::kUnavailable,
                fmt::format("the memory is on GPU {}, which this process cannot see "
                            "(CUDA_VISIBLE_DEVICES)",
                            bootstrap::printable(bus)))
      .with_peer(link.peer());
}

// A duplicate of another process's descriptor, or of one of this process. The drivers' descriptors
// cannot be opened through /proc.
Result<Fd> duplicate_descriptor(int pid, int fd) {
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.is_open()) return Status::from_errno(fmt::format("pidfd_open({})", pid), errno);
  Fd found(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), fd, 0)));
  if (found.is_open()) return found;
  const int error = errno;
  Status status = Status::from_errno(fmt::format("pidfd_getfd({}, {})", pid, fd), error);
  if (error == EPERM || error == ENOSYS) {
    return Status(Code::kUnavailable,
                  fmt::format("{}: the memory of cuMemMap (PyTorch's expandable segments) needs a "
                              "kernel of 5.6 or newer and permission (yama's ptrace_scope of at "
                              "most 1, in containers CAP_SYS_PTRACE); or use memory of cudaMalloc",
                              status.message()));
  }
  return status;
}

}  // namespace

Status ShmRemoteRegion::map_gpu_range(const Link& link, pid_t pid, const PeerSegment& segment,
                                      const GpuPieces& range, ShmIndirect& indirect) {
  DUNLIN_ASSIGN(auto driver, indirect.driver());
  DUNLIN_ASSIGN(const int device, device_of(link, *driver, range.pci_bus_id));
  GpuRanges* const ranges = GpuRanges::of(*driver);
  if (ranges == nullptr)
    return Status(Code::kUnavailable, "the driver opens whole allocations only");
  std::vector<Fd> descriptors;
  std::vector<std::uint64_t> sizes;
  Status failure;
  for (const auto& piece : range.pieces) {
    auto descriptor = duplicate_descriptor(pid, piece.fd);
    failure = descriptor.status();
    if (!failure.is_ok()) break;
    descriptors.push_back(std::move(descriptor).value());
    sizes.push_back(piece.size);
  }
  // As long as the region is registered, its descriptors' numbers belong to nothing else.
  if (!segment.is_registered(place_, generation_))
    return Status(Code::kNotFound, "the peer has deregistered the region").with_peer(link.peer());
  if (!failure.is_ok()) return std::move(failure).with_peer(link.peer());
  auto mapped = ranges->map_range(device, descriptors, sizes);
  if (!mapped) return std::move(mapped).status().with_peer(link.peer());
  range_ = std::move(mapped).value();
  gpu_device_ = device;
  gpu_ = std::move(driver);
  data_ = range_->data() + range.offset;
  indirect.is_used = true;
  return Status::ok();
}

Status ShmRemoteRegion::open_gpu(const Link& link, const PeerSegment& segment,
                                 const AllocatedGpuMemory& memory, ShmIndirect& indirect) {
  shared_ = memory.allocation;
  DUNLIN_ASSIGN(auto driver, indirect.driver());
  const std::string_view bus(shared_.pci_bus_id.data(),
                             strnlen(shared_.pci_bus_id.data(), shared_.pci_bus_id.size()));
  DUNLIN_ASSIGN(const int device, device_of(link, *driver, bus));
  if (memory.is_owned) {
    auto recorded = segment.record_opening(place_, generation_);
    if (!recorded) return std::move(recorded).status().with_peer(link.peer());
    opening_ = std::move(recorded).value();
  }
  auto opened = driver->open(device, shared_);
  if (!opened) return std::move(opened).status().with_peer(link.peer());
  gpu_device_ = device;
  gpu_ = std::move(driver);
  data_ = *opened + memory.offset;
  indirect.is_used = true;
  return Status::ok();
}

ShmRemoteRegion::~ShmRemoteRegion() {
  if (gpu_ == nullptr || range_ != nullptr) return;
  const bool is_closed = gpu_->close(gpu_device_, shared_);  // before opening_ ends
  if (!is_closed && opening_) opening_->keep();
}

}  // namespace dunlin::transport::shm
