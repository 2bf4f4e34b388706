#include "transports/shm/region.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dunlin::transport::shm {
namespace {

std::uint64_t inode_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

ShmRegion::ShmRegion(std::shared_ptr<MemoryRegion> memory, SegmentLayout& layout,
                     std::uint32_t place, std::uint64_t generation)
    : memory_(std::move(memory)), layout_(layout), place_(place), generation_(generation) {
  layout_.generations[place_].store(generation_, std::memory_order_release);
}

ShmRegion::~ShmRegion() {
  layout_.generations[place_].store(0, std::memory_order_release);
}

Bytes ShmRegion::descriptor() const {
  ByteWriter writer;
  writer.number(std::int32_t{memory_->fd()}).number(inode_of(memory_->fd()));
  writer.number(place_).number(generation_);
  return writer.take();
}

Result<std::unique_ptr<RemoteRegion>> ShmRemoteRegion::import(const Link& link, int pid,
                                                              std::span<const std::byte> descriptor,
                                                              std::size_t size) {
  ByteReader reader(descriptor);
  const auto fd = reader.number<std::int32_t>();
  const auto inode = reader.number<std::uint64_t>();
  const auto place = reader.number<std::uint32_t>();
  const auto generation = reader.number<std::uint64_t>();
  if (!reader.at_end() || place >= kMaxRegions) {
    return Status(Code::kCorrupted, "malformed shm region descriptor").with_peer(link.peer());
  }
  if (fd < 0) {
    return Status(Code::kUnavailable,
                  "other processes cannot map memory that Dunlin did not allocate (wrapped memory)")
        .with_peer(link.peer());
  }
  DUNLIN_ASSIGN(const int opened, open_descriptor_of(pid, fd, O_RDWR));
  // The owner may have closed the file since, and its descriptor's number may belong to another
  // file now.
  if (inode_of(opened) != inode) {
    close(opened);
    return Status(Code::kNotFound, "the peer has deregistered the region").with_peer(link.peer());
  }
  DUNLIN_ASSIGN(auto memory, MemoryRegion::map(opened, size));
  return std::unique_ptr<RemoteRegion>(
      new ShmRemoteRegion(link, std::move(memory), size, place, generation));
}

}  // namespace dunlin::transport::shm
