#include "runtime/memory/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "runtime/gpu/driver.h"
#include "runtime/topology.h"

namespace dunlin {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

// Makes a memfd of `size` bytes that no process can resize: if a peer shrank it, SIGBUS would kill
// every process that reads it.
Result<int> make_memfd(const char* name, std::size_t size, unsigned flags) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
  if (fd < 0) return Status::from_errno("memfd_create", errno);
  if (ftruncate(fd, static_cast<off_t>(size)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    const Status status =
        Status::from_errno(fmt::format("making a memfd of {} bytes", size), errno);
    close(fd);
    return status;
  }
  return fd;
}

}  // namespace

const char* to_string(MemoryKind kind) {
  return kind == MemoryKind::kHost ? "host" : "cuda";
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::map_descriptor(int fd, std::size_t size,
                                                                   std::size_t page_size) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    const Status status = Status::from_errno(fmt::format("mmap of {} bytes", size), errno);
    close(fd);
    return status;
  }
  return std::shared_ptr<MemoryRegion>(
      new MemoryRegion(static_cast<std::byte*>(data), size, fd, page_size));
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::allocate(std::size_t size,
                                                             const Options& options) {
  if (size == 0) return Status(Code::kInvalidArgument, "a memory region of 0 bytes");
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (size > SIZE_MAX / 2) {
    return Status(Code::kResourceExhausted, fmt::format("a memory region of {} bytes", size));
  }
  if (options.huge_pages && size >= kHugePage) {
    auto huge = allocate_pages(round_up(size, kHugePage), kHugePage, MFD_HUGETLB, options);
    if (huge) return huge;
  }
  return allocate_pages(round_up(size, page), page, 0, options);
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::allocate_pages(std::size_t size,
                                                                   std::size_t page_size,
                                                                   unsigned flags,
                                                                   const Options& options) {
  DUNLIN_ASSIGN(const int fd, make_memfd(options.name, size, flags));
  DUNLIN_ASSIGN(auto region, map_descriptor(fd, size, page_size));
  region->device_order_ = options.device_order;
  // The memory policy has to be set before the pages exist.
  bind_memory(region->data(), size, options.numa_node);
  // Reserves all pages, so that a full /dev/shm or an empty pool of huge pages is an error now
  // instead of a SIGBUS later.
  if (fallocate(fd, 0, 0, static_cast<off_t>(size)) != 0) {
    return Status::from_errno(fmt::format("reserving {} bytes of shared memory", size), errno);
  }
  return region;
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::map(int fd, std::size_t size) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || static_cast<std::size_t>(info.st_size) < size) {
    close(fd);
    return Status(
        Code::kCorrupted,
        fmt::format("a peer's region holds {} bytes, not the {} it announced", info.st_size, size));
  }
  auto region = map_descriptor(fd, size, static_cast<std::size_t>(info.st_blksize));
  // The mapping stays. Peers import many regions, and processes have few descriptors.
  if (region) close(std::exchange((*region)->fd_, -1));
  return region;
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::wrap(void* data, std::size_t size) {
  if (data == nullptr || size == 0) {
    return Status(Code::kInvalidArgument, "wrapping null or empty memory as a region");
  }
  return std::shared_ptr<MemoryRegion>(
      new MemoryRegion(static_cast<std::byte*>(data), size, -1, 0));
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::wrap(void* data, std::size_t size,
                                                         std::shared_ptr<GpuDriver> driver) {
  DUNLIN_ASSIGN(auto region, wrap(data, size));
  DUNLIN_ASSIGN(const auto first, driver->find(region->data()));
  DUNLIN_ASSIGN(const auto last, driver->find(region->data() + size - 1));
  if (first.has_value() != last.has_value() || (first && first->device != last->device)) {
    return Status(Code::kOutOfRange,
                  fmt::format("the {} bytes to wrap begin in {} and end in other memory", size,
                              first ? fmt::format("memory of GPU {}", first->device)
                                    : std::string("the host's memory")));
  }
  if (first) {
    region->gpu_ = std::move(driver);
    region->gpu_device_ = first->device;
  }
  return region;
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::allocate_on_gpu(
    std::shared_ptr<GpuDriver> driver, int device, std::size_t size) {
  if (size == 0) return Status(Code::kInvalidArgument, "a memory region of 0 bytes");
  DUNLIN_ASSIGN(std::byte* const data, driver->allocate(device, size));
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::shared_ptr<MemoryRegion> region(new MemoryRegion(data, size, -1, page));
  region->gpu_ = std::move(driver);
  region->gpu_device_ = device;
  return region;
}

MemoryRegion::~MemoryRegion() {
  if (is_owned() && gpu_) gpu_->free(gpu_device_, data_);
  if (is_owned() && !gpu_) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

}  // namespace dunlin
