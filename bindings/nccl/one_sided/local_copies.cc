#include "bindings/nccl/one_sided/local_copies.h"

#include <cstring>

namespace dunlin::nccl {

Result<GpuStream*> LocalCopies::stream_of(const Window& window) {
  auto& stream = streams_[{window.gpu, window.gpu_device}];
  if (stream == nullptr) {
    DUNLIN_ASSIGN(stream, window.gpu->create_stream(window.gpu_device));
  }
  return stream.get();
}

Status LocalCopies::start(const Window& to, std::size_t to_offset, const Window& from,
                          std::size_t from_offset, std::size_t size) {
  std::byte* const target = to.data + to_offset;
  const std::byte* const source = from.data + from_offset;
  if (to.gpu == nullptr && from.gpu == nullptr) {
    std::memmove(target, source, size);
    return Status::ok();
  }
  DUNLIN_ASSIGN(GpuStream* const stream, stream_of(to.gpu != nullptr ? to : from));
  if (to.gpu == nullptr) {
    DUNLIN_TRY(stream->copy_to_host(target, source, size));
  } else if (from.gpu == nullptr) {
    DUNLIN_TRY(stream->copy_to_device(target, source, size));
  } else {
    DUNLIN_TRY(stream->copy_on_device(target, source, size));
  }
  current_ = stream;
  return Status::ok();
}

Status LocalCopies::begin(const Window& to, std::size_t to_offset, const Window& from,
                          std::size_t from_offset, std::size_t size) {
  if (failure_.is_ok()) failure_ = start(to, to_offset, from, from_offset, size);
  from_ = &from;
  to_ = &to;
  return failure_;
}

Status LocalCopies::poll() {
  if (current_ == nullptr) return failure_;
  Status status = current_->poll();
  if (status.is_busy()) return status;
  current_ = nullptr;
  if (status.is_error()) failure_ = std::move(status).with_context("a copy within this rank");
  return failure_;
}

bool LocalCopies::is_using(const Window& window) const {
  return current_ != nullptr && (from_ == &window || to_ == &window);
}

}  // namespace dunlin::nccl
