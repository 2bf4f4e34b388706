#include "transports/slice.h"

#include <fmt/format.h>

#include "transports/published.h"

namespace dunlin::transport {
namespace {

// Offset first, then the rest: `offset + size` could overflow.
Status check_bounds(const char* what, std::size_t offset, std::size_t size, std::size_t available) {
  if (offset <= available && size <= available - offset) return Status::ok();
  return {Code::kOutOfRange,
          fmt::format("{} bytes at offset {} of a {} of {} bytes", size, offset, what, available)};
}

}  // namespace

Result<LocalSlice> LocalSlice::slice(std::size_t offset, std::size_t size) const {
  DUNLIN_TRY(check_bounds("local slice", offset, size, size_));
  return LocalSlice(region_, data_ + offset, size);
}

Result<LocalSlice> LocalRegion::slice(std::size_t offset, std::size_t size) const {
  return whole().slice(offset, size);
}

Bytes LocalRegion::descriptor() const {
  RegionDescriptor descriptor{size(), {}, refusals_};
  for (const auto& region : transports_) {
    if (region)
      descriptor.parts.emplace_back(std::string(region->transport()), region->descriptor());
  }
  return descriptor.encode();
}

Result<RemoteSlice> RemoteSlice::slice(std::size_t offset, std::size_t size) const {
  DUNLIN_TRY(check_bounds("remote slice", offset, size, size_));
  return RemoteSlice(region_, offset_ + offset, size);
}

Result<RemoteSlice> RemoteRegion::slice(std::size_t offset, std::size_t size) const {
  return whole().slice(offset, size);
}

}  // namespace dunlin::transport
