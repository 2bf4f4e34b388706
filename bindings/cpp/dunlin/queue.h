// Queues: messages along the edges of a node graph, with one receive queue per sender and
// acknowledgments on a path of their own (NOTIFY-ACK; ASAP, section 4).
//
//   dunlin::QueueOptions options{.name = "models", .in = {left}, .out = {right}};
//   options.slot_bytes = 1 << 20;
//   DUNLIN_ASSIGN(auto queues, dunlin::Queues::create(job, options));
//   DUNLIN_TRY(queues.send(right, payload, tag, timeout));
//   DUNLIN_ASSIGN(const dunlin::Message message, queues.receive(left, timeout));
//   ... message.data ...
//   DUNLIN_TRY(queues.release(left));
//
// The receiver owns `depth` slots per sender. A sender takes a credit, writes the payload into the
// next slot and notifies the receiver, in one operation. It never writes to a slot whose message
// was not acknowledged, so a received message does not change until it is released. Messages of an
// edge arrive in order, exactly once. The receiver reads straight from the slot, then releases it.
//
// Nothing allocates after create(). Owner thread of the job only. Destroy the queues when all ranks
// are done with theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <dunlin/lane.h>
#include <dunlin/memory.h>

namespace dunlin {

struct QueueOptions {
  std::string name{};  // distinguishes queues of one job; the same on all ranks
  // The ranks that send here, and those that this rank sends to. A rank appears in its neighbor's
  // `out` exactly if the neighbor is in its `in`.
  std::vector<Rank> in{};
  std::vector<Rank> out{};
  std::size_t slot_bytes = 0;  // the largest message; the same on all ranks
  std::uint32_t depth = 2;     // slots per edge; the same on all ranks
};

struct Message {
  std::uint64_t sequence = 0;       // 1, 2, 3, ... on each edge
  std::uint64_t tag = 0;            // the sender's
  std::span<const std::byte> data;  // valid until the message is released
};

class Queues {
 public:
  // Collective over the ranks that the edges connect: blocks until each neighbor has come.
  // kInvalidArgument when a neighbor disagrees about an edge, the slot size or the depth.
  static Result<Queues> create(Job& job, const QueueOptions& options);

  Queues(Queues&&) noexcept;
  Queues& operator=(Queues&&) noexcept;
  ~Queues();

  // Sends, or returns kBusy while no slot is free or the lane is full. `completion` fires when the
  // payload's memory may be reused. Returns kOutOfRange for a payload of more than slot_bytes. For
  // a rank that is not in the matching list of the options, functions that return a Status or a
  // Result return kInvalidArgument; sent() and acknowledged() return 0, and poll() nothing.
  Status try_send(Rank to, const MemorySlice& payload, std::uint64_t tag, Completion* completion);
  // Sends at most kNotificationBytes. The memory need not be registered, and is copied before the
  // call returns.
  Status try_send_inline(Rank to, std::span<const std::byte> payload, std::uint64_t tag);
  // Waits for a free slot, sends, and waits until the payload's memory may be reused. After a
  // deadline the message may still be sent: the memory must then stay until the queues are gone.
  Status send(Rank to, const MemorySlice& payload, std::uint64_t tag, Duration timeout);
  // The number of messages that this rank has sent, and how many of them the receiver has released.
  std::uint64_t sent(Rank to) const;
  std::uint64_t acknowledged(Rank to) const;

  // Returns the next message of a sender if it has arrived. A rank can hold up to `depth` messages
  // of a sender.
  std::optional<Message> poll(Rank from);
  // Waits for the next message. Returns the errors of Job::wait().
  Result<Message> receive(Rank from, Duration timeout);
  // Gives the slot of the oldest held message back to its sender. Returns kInvalidArgument if none
  // is held. If the lane has no room for the acknowledgment, a later call of release() or
  // progress() sends it.
  Status release(Rank from);
  // Sends the acknowledgments for which the lanes had no room before.
  Status progress();

 private:
  friend struct Internal;
  struct Impl;
  explicit Queues(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin
