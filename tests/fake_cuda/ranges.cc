#include "tests/fake_cuda/ranges.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/state.h"

namespace dunlin::testing {
namespace {

// Sizes and addresses are multiples of this, as on GPUs.
constexpr std::size_t kGranularity = std::size_t{2} << 20;

// Lies behind the memory in its file, so that another process knows what it opens.
struct Label {
  char magic[8] = {'f', 'a', 'k', 'e', 'v', 'm', 'm', '1'};
  std::uint64_t size = 0;
  cuda::MemoryProperties properties;
};

void* map_pages(void* at, std::size_t size, int protection, int fd) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* const mapped = mmap(at, size, protection, flags | (at == nullptr ? 0 : MAP_FIXED), fd, 0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

}  // namespace

struct FakeRanges::Range {
  Range(void* address_at, void* contents_at, std::size_t bytes)
      : address(static_cast<std::byte*>(address_at)),
        contents(static_cast<std::byte*>(contents_at)),
        size(bytes) {}
  ~Range() {
    if (address != nullptr) munmap(address, size);
    if (contents != nullptr) munmap(contents, size);
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  cuda::Address base() const { return reinterpret_cast<cuda::Address>(address); }

  std::byte* const address;   // which nothing can access
  std::byte* const contents;  // where the stand-in maps the memory
  const std::size_t size;
  std::map<std::size_t, Piece> pieces;  // by offset
};

FakeRanges::Handle* FakeRanges::handle_of(cuda::MemoryHandle handle) {
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : &found->second;
}

void FakeRanges::drop(cuda::MemoryHandle handle) {
  Handle* const found = handle_of(handle);
  if (found == nullptr || --found->uses > 0) return;
  close(found->fd);
  handles_.erase(handle);
}

cuda::MemoryHandle FakeRanges::add(Handle handle) {
  handles_[++last_handle_] = handle;
  return last_handle_;
}

std::shared_ptr<FakeRanges::Range> FakeRanges::range_of(cuda::Address address, std::size_t size) {
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return nullptr;
  const std::shared_ptr<Range> range = std::prev(next)->second;
  const std::size_t offset = address - range->base();
  return offset < range->size && size <= range->size - offset ? range : nullptr;
}

cuda::Code FakeRanges::create(cuda::MemoryHandle* handle, std::size_t size,
                              const cuda::MemoryProperties& properties) {
  const bool is_right = size > 0 && size % kGranularity == 0 &&
                        properties.type == cuda::kPinnedMemory &&
                        properties.location.type == cuda::kLocationIsDevice;
  if (!is_right) return cuda::kInvalidValue;
  const int fd = memfd_create("fake-gpu-piece", MFD_CLOEXEC);
  Label label;
  label.size = size;
  label.properties = properties;
  const auto end = static_cast<off_t>(size);
  if (fd < 0 || ftruncate(fd, end) != 0 || pwrite(fd, &label, sizeof label, end) != sizeof label) {
    if (fd >= 0) close(fd);
    return cuda::kOutOfMemory;
  }
  const std::lock_guard lock(mutex_);
  *handle = add({properties, size, fd});
  return cuda::kSuccess;
}

cuda::Code FakeRanges::release(cuda::MemoryHandle handle) {
  const std::lock_guard lock(mutex_);
  if (handle_of(handle) == nullptr) return cuda::kInvalidValue;
  drop(handle);
  return cuda::kSuccess;
}

cuda::Code FakeRanges::reserve(cuda::Address* address, std::size_t size) {
  if (size == 0 || size % kGranularity != 0) return cuda::kInvalidValue;
  auto range = std::make_shared<Range>(map_pages(nullptr, size, PROT_NONE, -1),
                                       map_pages(nullptr, size, PROT_NONE, -1), size);
  if (range->address == nullptr || range->contents == nullptr) return cuda::kOutOfMemory;
  *address = range->base();
  const std::lock_guard lock(mutex_);
  ranges_[*address] = std::move(range);
  return cuda::kSuccess;
}

cuda::Code FakeRanges::free(cuda::Address address, std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || found->second->size != size || !found->second->pieces.empty())
    return cuda::kInvalidValue;
  ranges_.erase(found);
  return cuda::kSuccess;
}

cuda::Code FakeRanges::map(cuda::Address address, std::size_t size, cuda::MemoryHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto range = range_of(address, size);
  Handle* const found = handle_of(handle);
  if (range == nullptr || found == nullptr || size != found->size) return cuda::kInvalidValue;
  const std::size_t offset = address - range->base();
  const auto next = range->pieces.upper_bound(offset);
  const bool is_free = (next == range->pieces.end() || next->first >= offset + size) &&
                       (next == range->pieces.begin() ||
                        std::prev(next)->first + std::prev(next)->second.size <= offset);
  if (!is_free) return cuda::kInvalidValue;
  if (map_pages(range->contents + offset, size, PROT_READ | PROT_WRITE, found->fd) == nullptr)
    return cuda::kMapFailed;
  ++found->uses;
  range->pieces[offset] = {size, handle, ++last_buffer_, false};
  return cuda::kSuccess;
}

cuda::Code FakeRanges::unmap(cuda::Address address, std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto range = range_of(address, size);
  if (range == nullptr) return cuda::kInvalidValue;
  const auto piece = range->pieces.find(address - range->base());
  if (piece == range->pieces.end() || piece->second.size != size) return cuda::kInvalidValue;
  (void)map_pages(range->contents + piece->first, size, PROT_NONE, -1);
  drop(piece->second.handle);
  range->pieces.erase(piece);
  return cuda::kSuccess;
}

cuda::Code FakeRanges::set_access(cuda::Address address, std::size_t size,
                                  const cuda::MemoryAccess& access) {
  const std::lock_guard lock(mutex_);
  const auto range = range_of(address, size);
  if (range == nullptr || access.flags != cuda::kReadAndWrite) return cuda::kInvalidValue;
  const std::size_t first = address - range->base();
  for (auto& [offset, piece] : range->pieces) {
    if (offset >= first && offset + piece.size <= first + size) piece.is_accessible = true;
  }
  return cuda::kSuccess;
}

cuda::Code FakeRanges::retain(cuda::MemoryHandle* handle, cuda::Address address) {
  const std::lock_guard lock(mutex_);
  const auto range = range_of(address, 1);
  if (range == nullptr) return cuda::kInvalidValue;
  const auto piece = range->pieces.find(address - range->base());
  if (piece == range->pieces.end()) return cuda::kInvalidValue;
  *handle = piece->second.handle;
  ++handle_of(*handle)->uses;
  return cuda::kSuccess;
}

cuda::Code FakeRanges::describe(cuda::MemoryProperties* properties, cuda::MemoryHandle handle) {
  const std::lock_guard lock(mutex_);
  const Handle* const found = handle_of(handle);
  if (found == nullptr) return cuda::kInvalidValue;
  *properties = found->properties;
  return cuda::kSuccess;
}

cuda::Code FakeRanges::share(int* fd, cuda::MemoryHandle handle) {
  const std::lock_guard lock(mutex_);
  const Handle* const found = handle_of(handle);
  if (found == nullptr || (found->properties.handle_types & cuda::kHandleIsFd) == 0)
    return cuda::kInvalidValue;
  *fd = fcntl(found->fd, F_DUPFD_CLOEXEC, 0);
  return *fd < 0 ? cuda::kOutOfMemory : cuda::kSuccess;
}

cuda::Code FakeRanges::open(cuda::MemoryHandle* handle, int fd) {
  struct stat info {};
  Label label;
  const bool is_file = fstat(fd, &info) == 0 && info.st_size > static_cast<off_t>(sizeof label);
  if (!is_file || pread(fd, &label, sizeof label,
                        info.st_size - static_cast<off_t>(sizeof label)) != sizeof label)
    return cuda::kInvalidValue;
  if (std::memcmp(label.magic, Label().magic, sizeof label.magic) != 0) return cuda::kInvalidValue;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return cuda::kOutOfMemory;
  const std::lock_guard lock(mutex_);
  *handle = add({label.properties, label.size, own});
  return cuda::kSuccess;
}

FakeAllocation FakeRanges::find(cuda::Address address, std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto range = range_of(address, size);
  if (range == nullptr) return {};
  const std::size_t first = address - range->base();
  auto piece = range->pieces.upper_bound(first);
  if (piece == range->pieces.begin()) return {};
  --piece;
  const auto begin = piece;
  std::size_t end = begin->first;
  while (piece != range->pieces.end() && piece->first == end && piece->second.is_accessible &&
         end < first + size) {
    end += piece->second.size;
    ++piece;
  }
  if (end < first + size) return {};
  FakeAllocation found;
  found.device = handle_of(begin->second.handle)->properties.location.id;
  found.size = begin->second.size;
  found.buffer = begin->second.buffer;
  found.is_virtual = true;
  found.pages = std::make_shared<FakePages>(range->address + begin->first,
                                            range->contents + begin->first, range);
  return found;
}

int FakeRanges::count() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(handles_.size() + ranges_.size());
}

}  // namespace dunlin::testing

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's.
#ifndef FAKE_CUDA_IS_OLD
extern "C" {
using dunlin::cuda::Address;
using dunlin::cuda::Code;
using dunlin::cuda::MemoryAccess;
using dunlin::cuda::MemoryHandle;
using dunlin::cuda::MemoryProperties;
using dunlin::testing::fake_enter;
using dunlin::testing::fake_ranges;

#define FAKE_CALL(name, call)                                                                \
  if (const Code failed = fake_enter(name); failed != dunlin::cuda::kSuccess) return failed; \
  return fake_ranges().call

Code cuMemCreate(MemoryHandle* handle, std::size_t size, const MemoryProperties* properties,
                 unsigned long long) {
  FAKE_CALL("cuMemCreate", create(handle, size, *properties));
}
Code cuMemRelease(MemoryHandle handle) {
  FAKE_CALL("cuMemRelease", release(handle));
}
Code cuMemAddressReserve(Address* address, std::size_t size, std::size_t, Address,
                         unsigned long long) {
  FAKE_CALL("cuMemAddressReserve", reserve(address, size));
}
Code cuMemAddressFree(Address address, std::size_t size) {
  FAKE_CALL("cuMemAddressFree", free(address, size));
}
Code cuMemMap(Address address, std::size_t size, std::size_t offset, MemoryHandle handle,
              unsigned long long) {
  if (offset != 0) return dunlin::cuda::kInvalidValue;
  FAKE_CALL("cuMemMap", map(address, size, handle));
}
Code cuMemUnmap(Address address, std::size_t size) {
  FAKE_CALL("cuMemUnmap", unmap(address, size));
}
Code cuMemSetAccess(Address address, std::size_t size, const MemoryAccess* access,
                    std::size_t count) {
  if (count != 1) return dunlin::cuda::kInvalidValue;
  FAKE_CALL("cuMemSetAccess", set_access(address, size, *access));
}
Code cuMemRetainAllocationHandle(MemoryHandle* handle, void* address) {
  FAKE_CALL("cuMemRetainAllocationHandle", retain(handle, reinterpret_cast<Address>(address)));
}
Code cuMemGetAllocationPropertiesFromHandle(MemoryProperties* properties, MemoryHandle handle) {
  FAKE_CALL("cuMemGetAllocationPropertiesFromHandle", describe(properties, handle));
}
Code cuMemExportToShareableHandle(void* shareable, MemoryHandle handle, int type,
                                  unsigned long long) {
  if (type != dunlin::cuda::kHandleIsFd) return dunlin::cuda::kInvalidValue;
  FAKE_CALL("cuMemExportToShareableHandle", share(static_cast<int*>(shareable), handle));
}
Code cuMemImportFromShareableHandle(MemoryHandle* handle, void* shareable, int type) {
  if (type != dunlin::cuda::kHandleIsFd) return dunlin::cuda::kInvalidValue;
  FAKE_CALL("cuMemImportFromShareableHandle",
            open(handle, static_cast<int>(reinterpret_cast<std::intptr_t>(shareable))));
}
}
#endif
// NOLINTEND(readability-identifier-naming)
