#include "runtime/gpu/cuda_ranges.h"

#include <fmt/format.h>

#include "runtime/log.h"

namespace dunlin {
namespace {

// A handle of memory, which it releases.
class Handle {
 public:
  Handle(const CudaLibrary& library, cuda::MemoryHandle number)
      : library_(library), number_(number) {}
  ~Handle() { (void)library_->cuMemRelease(number_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cuda::MemoryHandle number() const { return number_; }

 private:
  const CudaLibrary& library_;
  cuda::MemoryHandle number_;
};

Status check_functions(const CudaLibrary& library) {
  if (library->cuMemRetainAllocationHandle != nullptr) return Status::ok();
  return {Code::kUnavailable,
          "the CUDA driver cannot share memory of cuMemMap (11.0 or newer can)"};
}

// The handle of the piece that begins at `base`, as a descriptor.
Result<Fd> export_piece(const CudaLibrary& library, cuda::Address base) {
  cuda::MemoryHandle number = 0;
  const cuda::Code code =
      library->cuMemRetainAllocationHandle(&number, reinterpret_cast<void*>(base));
  if (code == cuda::kInvalidValue)
    return Status(Code::kUnavailable,
                  "CUDA cannot share this memory with other processes: it comes neither from "
                  "cuMemAlloc (cudaMalloc) nor from cuMemCreate, but from a pool, say "
                  "(cudaMallocAsync): cuIpcGetMemHandle and cuMemRetainAllocationHandle refuse it");
  DUNLIN_TRY(library.to_status("cuMemRetainAllocationHandle", code));
  const Handle handle(library, number);
  cuda::MemoryProperties properties;
  DUNLIN_TRY(library.to_status(
      "cuMemGetAllocationPropertiesFromHandle",
      library->cuMemGetAllocationPropertiesFromHandle(&properties, handle.number())));
  if ((properties.handle_types & cuda::kHandleIsFd) == 0)
    return Status(
        Code::kUnavailable,
        "this memory of cuMemCreate was made without a handle for other processes: make "
        "it with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR (PyTorch: 2.5 or newer does, or "
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False)");
  int fd = -1;
  DUNLIN_TRY(library.to_status(
      "cuMemExportToShareableHandle",
      library->cuMemExportToShareableHandle(&fd, handle.number(), cuda::kHandleIsFd, 0)));
  return Fd(fd);
}

class MappedCudaRange final : public MappedGpuRange {
 public:
  MappedCudaRange(const CudaLibrary& library, cuda::Context context)
      : library_(library), context_(context) {}
  ~MappedCudaRange() override;

  Status map(int device, std::span<const Fd> descriptors, std::span<const std::uint64_t> sizes);
  std::byte* data() const override { return reinterpret_cast<std::byte*>(address_); }

 private:
  Status map_piece(const Fd& descriptor, std::size_t size);
  void note(const char* what, cuda::Code code) const;

  const CudaLibrary& library_;
  cuda::Context context_;
  cuda::Address address_ = 0;        // 0: none is reserved
  std::size_t reserved_ = 0;         // bytes
  std::vector<std::size_t> mapped_;  // sizes of the pieces that are mapped
};

Status MappedCudaRange::map(int device, std::span<const Fd> descriptors,
                            std::span<const std::uint64_t> sizes) {
  const CurrentContext current(library_, context_);
  DUNLIN_TRY(Status(current.status()));
  for (const std::uint64_t size : sizes) reserved_ += size;
  DUNLIN_TRY(library_.to_status(fmt::format("cuMemAddressReserve of {} bytes", reserved_),
                                library_->cuMemAddressReserve(&address_, reserved_, 0, 0, 0)));
  for (std::size_t i = 0; i < sizes.size(); ++i) DUNLIN_TRY(map_piece(descriptors[i], sizes[i]));
  cuda::MemoryAccess access;
  access.location = {cuda::kLocationIsDevice, device};
  access.flags = cuda::kReadAndWrite;
  return library_.to_status(fmt::format("cuMemSetAccess for GPU {}", device),
                            library_->cuMemSetAccess(address_, reserved_, &access, 1));
}

Status MappedCudaRange::map_piece(const Fd& descriptor, std::size_t size) {
  cuda::MemoryHandle number = 0;
  // CUDA takes a descriptor as the value of a pointer.
  auto* const shareable = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
  const cuda::Code code =
      library_->cuMemImportFromShareableHandle(&number, shareable, cuda::kHandleIsFd);
  Status status = library_.to_status("cuMemImportFromShareableHandle", code);
  if (code == cuda::kInvalidHandle || code == cuda::kInvalidValue)
    return {Code::kNotFound, std::string(status.message())};
  DUNLIN_TRY(std::move(status));
  const Handle handle(library_, number);  // the mapping keeps the memory
  std::size_t offset = 0;
  for (const std::size_t before : mapped_) offset += before;
  DUNLIN_TRY(
      library_.to_status(fmt::format("cuMemMap of {} bytes", size),
                         library_->cuMemMap(address_ + offset, size, 0, handle.number(), 0)));
  mapped_.push_back(size);
  return Status::ok();
}

void MappedCudaRange::note(const char* what, cuda::Code code) const {
  const Status status = library_.to_status(what, code);
  if (!status.is_ok()) DUNLIN_DEBUG("{}", status.message());
}

MappedCudaRange::~MappedCudaRange() {
  if (address_ == 0) return;
  const CurrentContext current(library_, context_);
  cuda::Address at = address_;
  for (const std::size_t size : mapped_) {
    note("cuMemUnmap", library_->cuMemUnmap(at, size));
    at += size;
  }
  note("cuMemAddressFree", library_->cuMemAddressFree(address_, reserved_));
}

}  // namespace

Result<ExportedGpuRange> export_cuda_range(const CudaLibrary& library, cuda::Context context,
                                           std::byte* data, std::size_t size) {
  DUNLIN_TRY(check_functions(library));
  const CurrentContext current(library, context);
  DUNLIN_TRY(Status(current.status()));
  ExportedGpuRange range;
  const cuda::Address end = address_of(data) + size;
  for (cuda::Address at = address_of(data); at < end;) {
    cuda::Address base = 0;
    std::size_t piece = 0;
    DUNLIN_TRY(library.to_status("cuMemGetAddressRange",
                                 library->cuMemGetAddressRange_v2(&base, &piece, at)));
    DUNLIN_ASSIGN(Fd descriptor, export_piece(library, base));
    if (range.sizes.empty()) range.offset = at - base;
    range.descriptors.push_back(std::move(descriptor));
    range.sizes.push_back(piece);
    at = base + piece;
  }
  return range;
}

Result<std::unique_ptr<MappedGpuRange>> map_cuda_range(const CudaLibrary& library,
                                                       cuda::Context context, int device,
                                                       std::span<const Fd> descriptors,
                                                       std::span<const std::uint64_t> sizes) {
  DUNLIN_TRY(check_functions(library));
  auto range = std::make_unique<MappedCudaRange>(library, context);
  DUNLIN_TRY(range->map(device, descriptors, sizes));
  return std::unique_ptr<MappedGpuRange>(std::move(range));
}

}  // namespace dunlin
