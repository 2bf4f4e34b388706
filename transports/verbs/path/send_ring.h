// SendRing: the operations of one lane in the order in which they were posted, from the call that
// posts them until they complete.
//
// Operations stand at positions, which only grow: those from head() to unposted() are on the wire,
// those from there to tail() wait. Beside each operation lies a record in registered memory, from
// which its notification is sent, or into which an atomic's former value is read. The ring fills
// operations, settles what a lost connection left of them, and fires their completions. It posts
// nothing. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/rank.h"
#include "transports/verbs/connect/wire.h"
#include "transports/verbs/device/handle.h"
#include "transports/verbs/path/cell_numbers.h"
#include "transports/verbs/path/operation.h"

namespace dunlin::transport::verbs {

class SendRing {
 public:
  // `longest_message`: the most bytes that one work request moves.
  SendRing(Rank peer, std::uint64_t depth, std::uint64_t longest_message);

  // Before that has succeeded, and after release(), there is room for no operation.
  Status allocate(const ProtectionDomain& domain);
  // Frees the memory. The ring must be empty, and no queue pair may use it.
  void release();

  bool is_empty() const { return head_ == tail_; }
  bool has_room(std::uint64_t operations) const { return tail_ - head_ + operations <= room_; }
  std::uint64_t completed() const { return completed_; }
  std::uint64_t depth() const { return depth_; }

  // Positions.
  std::uint64_t first() const { return head_; }
  std::uint64_t tail() const { return tail_; }
  std::uint64_t unposted() const { return unposted_; }
  Operation& at(std::uint64_t position) { return operations_[position & mask_]; }
  const Operation& at(std::uint64_t position) const { return operations_[position & mask_]; }
  Operation& head() { return at(head_); }
  const Operation& head() const { return at(head_); }
  // Whether all work requests of the operation at the head are on the wire.
  bool is_head_on_wire() const { return head_ != unposted_; }
  // Whether the operation at that position is in progress.
  bool holds(std::uint64_t position) const { return position >= head_ && position < tail_; }
  bool has_unposted() const { return unposted_ != tail_; }
  void mark_posted() { ++unposted_; }  // all of the operation at unposted()

  const Record& record_at(std::uint64_t position) const { return records_[position & mask_]; }
  // What flushes read back from the peer, in the same registered memory.
  std::uint64_t* landed() const { return reinterpret_cast<std::uint64_t*>(records_ + mask_ + 1); }
  std::uint32_t key() const { return key_->local(); }

  // Each of these appends an operation. There must be room for it.
  void append_put(const char* name, const Transfer& transfer, Completion* completion) {
    Operation& operation = claim(name, completion);
    move(operation, transfer);
    append(operation);
  }
  void append_put_notify(const char* name, const Transfer& transfer,
                         const Notification& notification, Completion* completion) {
    Operation& operation = claim(name, completion);
    move(operation, transfer);
    announce(operation, notification);
    append(operation);
  }
  void append_notify(const char* name, const Notification& notification, Completion* completion) {
    Operation& operation = claim(name, completion);
    announce(operation, notification);
    append(operation);
  }
  // A put that tells the owner of the region that it has landed. `is_tied`: the operation appended
  // next fails with it.
  void append_put_with_landing(const char* name, const Transfer& transfer, const Landing& landing,
                               bool is_tied, Completion* completion);
  // A put whose bytes rails carry. `notification` may be null.
  void append_striped(const char* name, const Notification* notification, Completion* completion);
  void append_get(const Transfer& transfer, const Sink& sink, Completion* completion);
  void append_atomic(const char* name, const AtomicAccess& access, Completion* completion);
  // Reads from the peer, so that all bytes before it are in the peer's memory when it completes.
  void append_flush(const char* name, Completion* completion);
  // Reads a byte that doesn't matter, so that all bytes written before it into the same memory are
  // there when a later flush completes. It may be refused, if nobody has the memory any more.
  void append_read_back(std::uint64_t remote, std::uint32_t remote_key);
  // A WRITE of no bytes, which completes after everything before it.
  void append_empty(const char* name, bool is_signaled, Completion* completion);
  // A message of the transport itself (wire.h).
  void append_service(std::uint32_t immediate, std::uint64_t number);

  // Completes the operation at the head, and removes it.
  void finish_head(const Status& status) { finish(at(head_++), status); }
  void finish_all(const Status& status);
  // The rails are done with the operation at that position. `notifies`: it has a notification.
  void finish_stripes(std::uint64_t position, bool notifies, const Status& status);
  // The peer has refused the operation at that position.
  void refuse(std::uint64_t position, const Status& status);
  // The position of the operation that this work request belongs to; tail() if there is none.
  std::uint64_t find(std::uint64_t request) const;
  // Settles what a connection that was lost left: operations up to the notification with number
  // `taken` have been carried out and complete; the others are to be posted anew. An atomic that
  // was posted completes with kIoError. The peer has forgotten the numbers of cells.
  void settle(std::uint64_t taken);

 private:
  // The next free place, for an operation that append() then adds.
  Operation& claim(const char* name, Completion* completion) {
    Operation& operation = at(tail_);
    operation = Operation{};
    operation.name = name;
    operation.completion = completion;
    operation.is_signaled = completion != nullptr;
    return operation;
  }
  static void move(Operation& operation, const Transfer& transfer) {
    operation.moves_bytes = transfer.size != 0;
    operation.transfer = transfer;
  }
  void announce(Operation& operation, const Notification& notification) {
    Operation::Announcement& announcement = operation.announcement;
    announcement.is_wanted = true;
    announcement.cell = static_cast<std::uint32_t>(notification.id);
    const auto [number, short_form] = cells_.add(notification, operation.transfer.size);
    records_[tail_ & mask_].set(notification, number);
    announcement.is_short = short_form && operation.transfer.size <= longest_message_;
    if (announcement.is_short) announcement.immediate = short_form->encode();
  }
  void append(Operation& operation) {
    operation.rewind();
    ++tail_;
  }
  void finish(Operation& operation, const Status& carried_out);
  void settle(Operation& operation, bool has_arrived);
  // Turns short notifications that wait into records: the one that they count on from does not
  // arrive.
  void spell_out();

  const Rank peer_;
  const std::uint64_t depth_;
  std::uint64_t room_ = 0;  // depth_, or 0 without memory
  const std::uint64_t
      mask_;  // the ring has a power of two of places, so that no division is needed
  const std::uint64_t longest_message_;
  std::unique_ptr<Operation[]> operations_;
  std::shared_ptr<MemoryRegion> memory_;  // the records, and behind them what flushes read
  std::unique_ptr<MemoryKey> key_;
  Record* records_ = nullptr;
  // Positions: head_ <= unposted_ <= tail_.
  std::uint64_t head_ = 0;
  std::uint64_t unposted_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t completed_ = 0;
  SentCells cells_;
  Status refusal_;  // of a put without a completion, reported by the next flush
};

}  // namespace dunlin::transport::verbs
