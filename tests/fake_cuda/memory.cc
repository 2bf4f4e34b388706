#include "tests/fake_cuda/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

namespace dunlin::testing {
namespace {

// Allocations begin at a multiple of this, as CUDA's do, and end at one.
constexpr std::size_t kPage = 4096;

std::byte* map(int fd, std::size_t size, int protection) {
  void* const data = mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

// What a handle of CUDA IPC holds here. The inode tells whether the descriptor is still that of the
// allocation.
struct Handle {
  char magic[8];
  std::int64_t process;
  std::int32_t fd;
  std::int32_t device;
  std::uint64_t size;
  std::uint64_t inode;
};
constexpr char kMagic[8] = {'f', 'a', 'k', 'e', 'g', 'p', 'u', '1'};
static_assert(sizeof(Handle) <= sizeof(cuda::IpcHandle));

std::uint64_t inode_of(int fd) {
  struct stat found {};
  return fstat(fd, &found) == 0 ? found.st_ino : 0;
}

// A process that was killed has nothing open any more, even before its parent has waited for it.
bool lives(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(") ");
  if (name_end == std::string::npos) return false;
  const char state = text[name_end + 2];
  return state != 'Z' && state != 'X';
}

std::size_t round_up(std::size_t size) {
  return (std::max<std::size_t>(size, 1) + kPage - 1) / kPage * kPage;
}

}  // namespace

static_assert(sizeof(FakeOpeners) <= kPage);

void FakeOpeners::enter() {
  for (auto& process : processes) {
    pid_t nobody = 0;
    if (process.compare_exchange_strong(nobody, getpid())) return;
  }
}

void FakeOpeners::leave() {
  for (auto& process : processes) {
    pid_t self = getpid();
    if (process.compare_exchange_strong(self, 0)) return;
  }
}

bool FakeOpeners::has_any() const {
  return std::any_of(processes.begin(), processes.end(), [](const std::atomic<pid_t>& each) {
    const pid_t process = each;
    return process != 0 && lives(process);
  });
}

FakePages::FakePages(int fd, std::size_t size)
    : fd_(fd),
      mapped_(round_up(size)),
      address_(fd < 0 ? nullptr : map(fd, mapped_, PROT_NONE)),
      contents_(fd < 0 ? nullptr : map(fd, mapped_ + kPage, PROT_READ | PROT_WRITE)) {}

FakePages::~FakePages() {
  if (owner_ != nullptr) return;
  if (address_ != nullptr) munmap(address_, mapped_);
  if (contents_ != nullptr) munmap(contents_, mapped_ + kPage);
  if (fd_ >= 0) ::close(fd_);
}

cuda::Code FakeMemory::allocate(int device, std::size_t size, cuda::Address* address) {
  if (size == 0) return cuda::kInvalidValue;
  if (size > std::size_t{1} << 34) return cuda::kOutOfMemory;
  const int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(round_up(size) + kPage)) != 0) {
    ::close(fd);
    return cuda::kOutOfMemory;
  }
  auto pages = std::make_shared<FakePages>(fd, size);
  if (!pages->is_valid()) return cuda::kOutOfMemory;
  // What a program reads before it has written anything is not zero on a GPU either.
  std::memset(pages->contents(), 0xa5, size);
  *address = reinterpret_cast<cuda::Address>(pages->address());
  const std::lock_guard lock(mutex_);
  allocations_[*address] = {device, size, ++last_buffer_, false, false, 0, std::move(pages)};
  return cuda::kSuccess;
}

cuda::Code FakeMemory::free(cuda::Address address, bool* was_open) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.is_opened) return cuda::kInvalidValue;
  *was_open = found->second.pages->openers().has_any();
  allocations_.erase(found);
  return cuda::kSuccess;
}

FakeAllocation FakeMemory::find(cuda::Address address, std::size_t size) {
  const std::lock_guard lock(mutex_);
  auto next = allocations_.upper_bound(address);
  if (next != allocations_.begin()) {
    --next;
    const std::uint64_t offset = address - next->first;
    if (offset < next->second.size && size <= next->second.size - offset) return next->second;
  }
  return ranges_.find(address, size);
}

std::byte* FakeMemory::contents(cuda::Address address, std::size_t size) {
  const FakeAllocation found = find(address, size);
  if (found.pages == nullptr) return nullptr;
  return found.pages->contents() +
         (address - reinterpret_cast<cuda::Address>(found.pages->address()));
}

cuda::Code FakeMemory::share(cuda::Address address, cuda::IpcHandle* handle) {
  const FakeAllocation found = find(address);
  if (found.pages == nullptr || found.is_opened || found.is_virtual) return cuda::kInvalidValue;
  Handle shared{{},           getpid(),   found.pages->fd(),
                found.device, found.size, inode_of(found.pages->fd())};
  std::memcpy(shared.magic, kMagic, sizeof kMagic);
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &shared, sizeof shared);
  return cuda::kSuccess;
}

cuda::Code FakeMemory::open(int device, const cuda::IpcHandle& handle, cuda::Address* address) {
  Handle shared{};
  std::memcpy(&shared, &handle, sizeof shared);
  if (std::memcmp(shared.magic, kMagic, sizeof kMagic) != 0) return cuda::kInvalidValue;
  // A process can't open its own memory.
  if (shared.process == getpid()) return cuda::kInvalidContext;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [opened, allocation] : allocations_) {
      if (allocation.is_opened && allocation.key == shared.inode) return cuda::kAlreadyMapped;
    }
  }
  const std::string path =
      "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return cuda::kInvalidHandle;
  if (inode_of(fd) != shared.inode) {
    ::close(fd);
    return cuda::kInvalidHandle;
  }
  auto pages = std::make_shared<FakePages>(fd, shared.size);
  if (!pages->is_valid()) return cuda::kMapFailed;
  pages->openers().enter();
  *address = reinterpret_cast<cuda::Address>(pages->address());
  const std::lock_guard lock(mutex_);
  allocations_[*address] = {device, shared.size,  ++last_buffer_,  true,
                            false,  shared.inode, std::move(pages)};
  return cuda::kSuccess;
}

cuda::Code FakeMemory::close(cuda::Address address) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || !found->second.is_opened) return cuda::kInvalidValue;
  found->second.pages->openers().leave();
  allocations_.erase(found);
  return cuda::kSuccess;
}

int FakeMemory::count(bool is_opened) {
  const std::lock_guard lock(mutex_);
  return (is_opened ? 0 : ranges_.count()) +
         static_cast<int>(
             std::count_if(allocations_.begin(), allocations_.end(),
                           [&](const auto& each) { return each.second.is_opened == is_opened; }));
}

void FakeMemory::write_off() {
  const std::lock_guard lock(mutex_);
  for (const auto& [address, each] : allocations_) {
    if (each.is_opened) each.pages->openers().leave();
  }
  allocations_.clear();
}

int FakeMemory::count_of(std::size_t size) {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(
      allocations_.begin(), allocations_.end(),
      [&](const auto& each) { return !each.second.is_opened && each.second.size == size; }));
}

}  // namespace dunlin::testing
