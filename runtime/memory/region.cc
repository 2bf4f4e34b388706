#include "runtime/memory/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/gpu/driver.h"
#include "runtime/topology.h"

namespace dunlin {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

// `flags` are those of mmap.
Result<std::byte*> map_memory(std::size_t size, int flags, int fd, std::size_t offset) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return Status::from_errno(fmt::format("mmap of {} bytes", size), errno);
  return static_cast<std::byte*>(data);
}

}  // namespace

const char* to_string(MemoryKind kind) {
  return kind == MemoryKind::kHost ? "host" : "cuda";
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::allocate(std::size_t size,
                                                             const Options& options) {
  if (size == 0) return Status(Code::kInvalidArgument, "a memory region of 0 bytes");
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (size > SIZE_MAX / 2) {
    return Status(Code::kResourceExhausted, fmt::format("a memory region of {} bytes", size));
  }
  const bool wants_huge =
      options.huge_pages && options.pages != Pages::kSparse && size >= kHugePage;
  if (options.is_private) return allocate_private(size, wants_huge, options);
  if (wants_huge) {
    auto huge = allocate_file(round_up(size, kHugePage), kHugePage, MFD_HUGETLB, options);
    if (huge) return huge;
  }
  if (options.pool == nullptr) return allocate_file(round_up(size, page), page, 0, options);
  DUNLIN_ASSIGN(FileRange range, options.pool->take(options.name, round_up(size, page)));
  return allocate_range(std::move(range), page, options);
}

// The memory is shared with forked processes: it would move away from a device that writes to it if
// this process wrote to it after a fork.
Result<std::shared_ptr<MemoryRegion>> MemoryRegion::allocate_private(std::size_t size,
                                                                     bool wants_huge,
                                                                     const Options& options) {
  constexpr int kFlags = MAP_SHARED | MAP_ANONYMOUS;
  std::size_t page = kHugePage;
  std::size_t rounded = round_up(size, page);
  auto data = wants_huge ? map_memory(rounded, kFlags | MAP_HUGETLB, -1, 0)
                         : Result<std::byte*>(Status(Code::kUnavailable, ""));
  if (!data) {
    page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    rounded = round_up(size, page);
    data = map_memory(rounded, kFlags, -1, 0);
  }
  if (!data) return std::move(data).status();
  std::shared_ptr<MemoryRegion> region(new MemoryRegion(*data, rounded, page));
  region->device_order_ = options.device_order;
  bind_memory(*data, rounded, options.numa_node);
  std::memset(*data, 0, rounded);  // makes the pages, now that the policy is set
  return region;
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::allocate_file(std::size_t size,
                                                                  std::size_t page_size,
                                                                  unsigned flags,
                                                                  const Options& options) {
  DUNLIN_ASSIGN(auto file, SharedFile::create(options.name, size, flags));
  return allocate_range({std::move(file), 0, size}, page_size, options);
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::allocate_range(FileRange range,
                                                                   std::size_t page_size,
                                                                   const Options& options) {
  DUNLIN_ASSIGN(std::byte* const data,
                map_memory(range.size, MAP_SHARED, range.file->fd(), range.offset));
  std::shared_ptr<MemoryRegion> region(new MemoryRegion(data, range.size, page_size));
  region->range_ = std::move(range);
  region->device_order_ = options.device_order;
  // The memory policy has to be set before the pages exist.
  bind_memory(data, region->size(), options.numa_node);
  // Where the kernel gives shared memory huge pages, one word would take such a page.
  if (options.pages == Pages::kSparse) madvise(data, region->size(), MADV_NOHUGEPAGE);
  if (options.pages != Pages::kReserved && page_size < kHugePage) return region;
  // Reserves all pages, so that a full /dev/shm or an empty pool of huge pages is an error now
  // instead of a SIGBUS later.
  if (fallocate(region->fd(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(region->fd_offset()),
                static_cast<off_t>(region->size())) != 0) {
    return Status::from_errno(fmt::format("reserving {} bytes of shared memory", region->size()),
                              errno);
  }
  return region;
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::map(Fd file, std::size_t size,
                                                        std::size_t offset) {
  // The mapping stays when `file` is closed. Peers import many regions, and processes have few
  // descriptors.
  struct stat info {};
  const auto has = fstat(file.get(), &info) != 0 ? 0 : static_cast<std::size_t>(info.st_size);
  if (has < offset || has - offset < size) {
    return Status(Code::kCorrupted,
                  fmt::format("a peer's region holds {} bytes, not the {} it announced",
                              has < offset ? 0 : has - offset, size));
  }
  DUNLIN_ASSIGN(std::byte* const data, map_memory(size, MAP_SHARED, file.get(), offset));
  return std::shared_ptr<MemoryRegion>(
      new MemoryRegion(data, size, static_cast<std::size_t>(info.st_blksize)));
}

Result<std::shared_ptr<MemoryRegion>> MemoryRegion::wrap(void* data, std::size_t size) {
  if (data == nullptr || size == 0) {
    return Status(Code::kInvalidArgument, "wrapping null or empty memory as a region");
  }
  return std::shared_ptr<MemoryRegion>(new MemoryRegion(static_cast<std::byte*>(data), size, 0));
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
  std::shared_ptr<MemoryRegion> region(new MemoryRegion(data, size, page));
  region->gpu_ = std::move(driver);
  region->gpu_device_ = device;
  return region;
}

void MemoryRegion::clear(std::size_t offset, std::size_t size) {
  if (range_.file && !range_.file->is_owner()) return;
  const std::size_t end = offset + size;
  const std::size_t unit = std::max<std::size_t>(page_size_, 1);
  const std::size_t first = round_up(offset, unit);
  const std::size_t last = end / unit * unit;
  if (range_.file && first < last && range_.file->release(range_.offset + first, last - first)) {
    std::memset(data_ + offset, 0, first - offset);
    std::memset(data_ + last, 0, end - last);
  } else {
    std::memset(data_ + offset, 0, size);
  }
}

MemoryRegion::~MemoryRegion() {
  if (is_owned() && gpu_) gpu_->free(gpu_device_, data_);
  if (is_owned() && !gpu_) munmap(data_, size_);
  if (range_.file) range_.file->release(range_.offset, range_.size);
}

}  // namespace dunlin
