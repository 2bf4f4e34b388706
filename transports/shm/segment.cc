#include "transports/shm/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/membarrier.h"
#include "runtime/topology.h"

namespace dunlin::transport::shm {

Bytes SegmentAddress::encode() const {
  ByteWriter writer;
  writer.text(host_id).number(pid_namespace).number(pid).number(segment_fd).number(doorbell_fd);
  writer.number(board_fd).number(board_bytes).number(token[0]).number(token[1]);
  writer.text(handover.name).number(static_cast<std::uint8_t>(handover.is_in_folder));
  writer.number(handover.network_namespace).text(handover.refusal);
  return writer.take();
}

Result<SegmentAddress> SegmentAddress::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  SegmentAddress address;
  address.host_id = reader.text();
  address.pid_namespace = reader.number<std::uint64_t>();
  address.pid = reader.number<std::int32_t>();
  address.segment_fd = reader.number<std::int32_t>();
  address.doorbell_fd = reader.number<std::int32_t>();
  address.board_fd = reader.number<std::int32_t>();
  address.board_bytes = reader.number<std::uint64_t>();
  address.token = {reader.number<std::uint64_t>(), reader.number<std::uint64_t>()};
  address.handover.name = reader.text();
  const auto is_in_folder = reader.number<std::uint8_t>();
  address.handover.is_in_folder = is_in_folder != 0;
  address.handover.network_namespace = reader.number<std::uint64_t>();
  address.handover.refusal = reader.text();
  const bool is_name_valid = address.handover.name.find('/') == std::string::npos;
  if (!reader.at_end() || is_in_folder > 1 || !is_name_valid)
    return Status(Code::kCorrupted, "malformed shm address");
  return address;
}

std::uint64_t this_pid_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

Result<std::unique_ptr<Segment>> Segment::create(const std::string& host_id,
                                                 const MemoryRegion& board) {
  MemoryRegion::Options options;
  options.huge_pages = false;
  options.name = "dunlin-segment";
  options.pages = Pages::kSparse;  // it has room for many regions, and most processes have few
  DUNLIN_ASSIGN(auto memory, MemoryRegion::allocate(sizeof(SegmentLayout), options));
  std::unique_ptr<Segment> segment(new Segment(std::move(memory)));
  int doorbell[2];
  if (pipe2(doorbell, O_NONBLOCK | O_CLOEXEC) != 0) return Status::from_errno("pipe", errno);
  segment->doorbell_read_ = Fd(doorbell[0]);
  segment->doorbell_write_ = Fd(doorbell[1]);

  SegmentAddress& address = segment->address_;
  address.host_id = host_identity(host_id);
  address.pid_namespace = this_pid_namespace();
  address.pid = getpid();
  address.segment_fd = segment->memory_->fd();
  address.doorbell_fd = doorbell[1];
  address.board_fd = board.fd();
  address.board_bytes = board.size();
  randombytes_buf(address.token.data(), sizeof address.token);

  SegmentLayout& layout = segment->layout();
  layout.token = address.token;
  layout.needs_fence = has_membarriers() ? 0 : 1;
  layout.magic = kMagic;
  return segment;
}

void Segment::drain_doorbell() {
  char bytes[64];
  while (read(doorbell_read_.get(), bytes, sizeof bytes) > 0) {
  }
}

Status Segment::offer_to(DescriptorServer& server) {
  DUNLIN_ASSIGN(doorbell_offer_,
                open_descriptor_of(getpid(), doorbell_write_.get(), O_RDWR | O_NONBLOCK));
  server.offer(kSegmentOffer, memory_->fd());
  server.offer(kBoardOffer, address_.board_fd);
  server.offer(kDoorbellOffer, doorbell_offer_.get());
  address_.handover = server.place();
  return Status::ok();
}

Result<std::unique_ptr<PeerSegment>> PeerSegment::attach(const SegmentAddress& address,
                                                         PeerProcess& process) {
  std::unique_ptr<PeerSegment> peer(new PeerSegment());
  DUNLIN_ASSIGN(Fd segment, process.open(kSegmentOffer, address.segment_fd, O_RDWR));
  DUNLIN_ASSIGN(peer->memory_, MemoryRegion::map(std::move(segment), sizeof(SegmentLayout)));
  const SegmentLayout& layout = peer->layout();
  if (layout.magic != kMagic || layout.token != address.token) {
    return Status(Code::kCorrupted,
                  fmt::format("{} is not the process that published this address", process.name()));
  }
  DUNLIN_ASSIGN(Fd board, process.open(kBoardOffer, address.board_fd, O_RDWR));
  DUNLIN_ASSIGN(peer->board_, MemoryRegion::map(std::move(board), address.board_bytes));
  peer->cells_ = {reinterpret_cast<NotifyCell*>(peer->board_->data()),
                  peer->board_->size() / sizeof(NotifyCell)};
  DUNLIN_ASSIGN(peer->doorbell_,
                process.open(kDoorbellOffer, address.doorbell_fd, O_RDWR | O_NONBLOCK));
  peer->fence_ = layout.needs_fence != 0 || !accept_membarriers();
  return peer;
}

Result<RecordedOpening> PeerSegment::record_opening(std::uint32_t place,
                                                    std::uint64_t generation) const {
  DUNLIN_ASSIGN(auto recorded, RecordedOpening::record(layout().openings, generation));
  if (layout().generations[place].load() != generation)
    return Status(Code::kNotFound, "the peer has deregistered the region");
  return recorded;
}

void PeerSegment::wake() {
  if (layout().sleeping.exchange(0, std::memory_order_acq_rel) == 0) return;
  // A full pipe is readable already, so the error may be ignored. SIGPIPE cannot happen, because
  // the pipe was opened for reading, too.
  const char ring = 1;
  (void)!write(doorbell_.get(), &ring, 1);
}

}  // namespace dunlin::transport::shm
