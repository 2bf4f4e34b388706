#include "transports/verbs/path/send_ring.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "transports/verbs/memory/gpu_memory.h"

namespace dunlin::transport::verbs {
namespace {

// What a flush reads back: the number of the last landing note that the peer has carried out.
constexpr std::uint64_t kFlushBytes = sizeof(std::uint64_t);

}  // namespace

SendRing::SendRing(Rank peer, std::uint64_t depth, std::uint64_t longest_message)
    : peer_(peer),
      depth_(depth),
      mask_(std::bit_ceil(depth) - 1),
      longest_message_(longest_message) {}

Status SendRing::allocate(const ProtectionDomain& domain) {
  const std::uint64_t places = mask_ + 1;
  operations_ = std::make_unique<Operation[]>(places);
  MemoryRegion::Options options;
  options.huge_pages = false;
  options.is_private = true;
  options.name = "dunlin-records";
  DUNLIN_ASSIGN(memory_, MemoryRegion::allocate((places + 1) * sizeof(Record), options));
  DUNLIN_ASSIGN(key_, MemoryKey::create(domain, *memory_));
  records_ = reinterpret_cast<Record*>(memory_->data());
  room_ = depth_;
  return Status::ok();
}

void SendRing::release() {
  room_ = 0;
  records_ = nullptr;
  key_.reset();
  memory_.reset();
  operations_.reset();
  cells_.clear();
}

void SendRing::append_put_with_landing(const char* name, const Transfer& transfer,
                                       const Landing& landing, bool is_tied,
                                       Completion* completion) {
  Operation& operation = claim(name, completion);
  move(operation, transfer);
  operation.announcement.is_wanted = true;
  operation.announcement.cell = kLanded;
  records_[tail_ & mask_].set(landing);
  operation.is_tied = is_tied;
  append(operation);
}

void SendRing::append_striped(const char* name, const Notification* notification,
                              Completion* completion) {
  Operation& operation = claim(name, completion);
  if (notification != nullptr) announce(operation, *notification);
  // It is announced once the rails are done, and then by a record: a short notification would count
  // the bytes of its own work request.
  operation.announcement.is_wanted = false;
  operation.announcement.is_short = false;
  operation.awaits_stripes = true;
  append(operation);
}

void SendRing::append_get(const Transfer& transfer, const Sink& sink, Completion* completion) {
  Operation& operation = claim("get", completion);
  operation.action = Action::kRead;
  move(operation, transfer);
  operation.sink = sink;
  append(operation);
}

void SendRing::append_atomic(const char* name, const AtomicAccess& access, Completion* completion) {
  Operation& operation = claim(name, completion);
  operation.action = access.action;
  operation.atomic = access;
  // The device stores the former value in the operation's record.
  move(operation, {.local = reinterpret_cast<std::uint64_t>(&record_at(tail_)),
                   .remote = access.remote,
                   .size = sizeof(std::uint64_t),
                   .local_key = key(),
                   .remote_key = access.remote_key});
  append(operation);
}

void SendRing::append_flush(const char* name, Completion* completion) {
  Operation& operation = claim(name, completion);
  operation.action = Action::kFlush;
  move(operation, {.size = kFlushBytes});
  append(operation);
}

void SendRing::append_read_back(std::uint64_t remote, std::uint32_t remote_key) {
  Operation& operation = claim("read behind a write to a GPU", nullptr);
  operation.action = Action::kRead;
  operation.is_read_back = true;
  // The byte goes into the operation's record.
  move(operation, {.local = reinterpret_cast<std::uint64_t>(&record_at(tail_)),
                   .remote = remote,
                   .size = 1,
                   .local_key = key(),
                   .remote_key = remote_key});
  append(operation);
}

void SendRing::append_empty(const char* name, bool is_signaled, Completion* completion) {
  Operation& operation = claim(name, completion);
  operation.moves_bytes = true;
  operation.is_signaled = is_signaled;
  append(operation);
}

void SendRing::append_service(std::uint32_t immediate, std::uint64_t number) {
  Operation& operation = claim("message", nullptr);
  operation.announcement.is_wanted = true;
  operation.announcement.cell = immediate;
  records_[tail_ & mask_].set({NotifyId{}, number, 0, 0, {}}, 0);
  append(operation);
}

[[gnu::hot]] void SendRing::finish(Operation& operation, const Status& carried_out) {
  if (std::exchange(operation.is_done, true)) return;
  ++completed_;
  Status status = carried_out;
  if (status.is_ok() && operation.sink.memory != nullptr)
    status = operation.sink.memory->deliver(operation.sink.offset, operation.transfer.size)
                 .with_peer(peer_);
  Completion* const completion = std::exchange(operation.completion, nullptr);
  const bool is_remote_flush = operation.action == Action::kFlush;
  if (operation.is_atomic() && operation.atomic.before != nullptr && status.is_ok())
    std::memcpy(operation.atomic.before, reinterpret_cast<const void*>(operation.transfer.local),
                sizeof(std::uint64_t));
  // An operation that is tied to the next one reports through that one.
  if (!status.is_ok() && completion == nullptr && !operation.is_tied && refusal_.is_ok())
    refusal_ = status;
  if (completion == nullptr) return;
  completion->fire(status.is_ok() && is_remote_flush ? std::move(refusal_) : status);
}

void SendRing::finish_all(const Status& status) {
  unposted_ = tail_;
  while (!is_empty()) finish_head(status);
}

void SendRing::finish_stripes(std::uint64_t position, bool notifies, const Status& status) {
  Operation& operation = at(position);
  operation.awaits_stripes = false;
  operation.announcement.is_wanted = operation.progress.has_record_left = notifies;
  if (status.is_ok()) return;
  finish(operation, status);
  operation.rewind();
  spell_out();
}

void SendRing::refuse(std::uint64_t position, const Status& status) {
  finish(at(position), at(position).is_read_back ? Status::ok() : status);
  if (at(position).is_tied) finish(at(position + 1), status);
  spell_out();
}

std::uint64_t SendRing::find(std::uint64_t request) const {
  std::uint64_t position = head_;
  while (position != unposted_ && at(position).is_posted() &&
         at(position).progress.last_request < request) {
    ++position;
  }
  return position;
}

// The peer carries operations out in order: if it has taken a record, all bytes before that record
// have landed.
void SendRing::settle(std::uint64_t taken) {
  std::uint64_t arrived = head_;
  for (std::uint64_t position = head_; position != unposted_; ++position) {
    const std::uint64_t record = at(position).progress.record;
    if (record != 0 && record <= taken) arrived = position + 1;
  }
  for (std::uint64_t position = head_; position != tail_; ++position) {
    settle(at(position), position < arrived);
  }
  while (head_ != tail_ && head().is_done) ++head_;
  unposted_ = head_;
  spell_out();
}

void SendRing::settle(Operation& operation, bool has_arrived) {
  if (operation.is_atomic() && operation.is_posted()) {
    finish(operation, Status(Code::kIoError,
                             fmt::format("{}: the connection was lost while it was in progress; it "
                                         "may have been carried out or not",
                                         operation.name))
                          .with_peer(peer_));
  } else if (has_arrived && operation.action != Action::kRead) {
    finish(operation, Status::ok());
  }
  operation.rewind();
}

void SendRing::spell_out() {
  cells_.doubt();
  for (std::uint64_t position = head_; position != tail_; ++position) {
    Operation& one = at(position);
    // The work request of a short notification would have carried the bytes.
    if (one.announcement.is_short && one.progress.has_record_left)
      one.progress.has_bytes_left = one.moves_bytes;
    one.announcement.is_short = false;
  }
}

}  // namespace dunlin::transport::verbs
