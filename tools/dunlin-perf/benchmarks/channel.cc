// channel: messages through SendQueue and ReceiveQueue, as programs send them, ACKs included.
//   - ping-pong, half a round trip: receive, read the last byte, answer, release (the ACK follows
//     the answer);
//   - stream: the leader sends while it has credits, the peer polls and releases; the clock stops
//     at the last ACK.
// Up to 40 bytes travel inside the notification, from plain memory; more come from registered
// memory.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/check.h"
#include "tools/dunlin-perf/benchmarks/pair.h"
#include "tools/dunlin-perf/benchmarks/ping_pong.h"
#include "transports/channel/queue.h"

namespace dunlin::perf {
namespace {

using transport::kInlineBytes;
using transport::ReceiveQueue;
using transport::SendQueue;
using transport::SlotExchange;

constexpr std::uint32_t kDepth = 16;
constexpr std::uint64_t kCheckedRounds = 4;

class ChannelExchange {
 public:
  ChannelExchange(Pair& pair, SlotExchange& slots, transport::LocalSlice payload)
      : pair_(pair),
        payload_(payload),
        sender_(slots, slots.out().front()),
        receiver_(slots, slots.in().front()) {}

  // Sends, then releases what was received before.
  Status send() {
    DUNLIN_TRY(post());
    return release();
  }
  Status receive() {
    DUNLIN_TRY(poll());
    if (payload_.size() != 0) touch(&message_->data.back());
    return Status::ok();
  }

  Status post() {
    return pair_.job().post(pair_.peer(), [&] {
      return payload_.size() <= kInlineBytes
                 ? sender_.try_send_inline({payload_.data(), payload_.size()}, 0)
                 : sender_.try_send(payload_, 0, nullptr);
    });
  }
  Status poll() {
    return pair_.job().await(pair_.peer(), "a message", [&] {
      // Read the message in place. A copy would wait for the stores that have just written it.
      message_ = receiver_.poll();
      return message_.has_value();
    });
  }
  Status release() {
    if (!is_held()) return Status::ok();
    Status status = receiver_.release();
    if (!status.is_busy()) return status;
    return pair_.job().post(pair_.peer(), [&] { return receiver_.progress(); });
  }
  // Whether all messages of both directions are acknowledged.
  Status settle() {
    DUNLIN_TRY(release());
    return pair_.job().await(pair_.peer(), "the last ACK",
                             [&] { return sender_.acknowledged() == sender_.sent(); });
  }
  const transport::Message& message() const { return *message_; }

 private:
  bool is_held() const { return receiver_.released() != receiver_.received(); }

  Pair& pair_;
  transport::LocalSlice payload_;
  SendQueue sender_;
  ReceiveQueue receiver_;
  std::optional<transport::Message> message_;
};

Status check(Pair& pair, ChannelExchange& exchange, std::size_t size) {
  const std::span<std::byte> out{pair.source().data(), size};
  for (std::uint64_t round = 0; round < kCheckedRounds; ++round) {
    const auto seed_of = [&](bool leader) { return round * 2 + (leader ? 1 : 0) + size; };
    fill(out, seed_of(pair.leads()));
    DUNLIN_TRY(exchange.post());
    DUNLIN_TRY(exchange.poll());
    const auto arrived = exchange.message().data;
    if (arrived.size() != size) {
      return {Code::kCorrupted,
              fmt::format("a message of {} bytes, expected {}", arrived.size(), size)};
    }
    DUNLIN_TRY(verify(arrived, seed_of(!pair.leads()), "channel message"));
    DUNLIN_TRY(exchange.settle());
    DUNLIN_TRY(pair.sync());
  }
  return Status::ok();
}

// Streams messages in one direction, until the last ACK.
Status stream(Pair& pair, ChannelExchange& exchange, std::uint64_t count, Rate& rate) {
  DUNLIN_TRY(exchange.settle());
  DUNLIN_TRY(pair.sync());
  const TimePoint began = pair.job().fabric().clock().now();
  for (std::uint64_t i = 0; i < count; ++i) {
    DUNLIN_TRY(pair.leads() ? exchange.post() : exchange.poll());
    if (!pair.leads()) DUNLIN_TRY(exchange.release());
  }
  DUNLIN_TRY(exchange.settle());
  rate.add(count, pair.job().fabric().clock().now() - began);
  return Status::ok();
}

Result<Row> measure(Pair& pair, std::size_t size, std::uint32_t depth, const Options& options) {
  DUNLIN_ASSIGN(
      const auto slots,
      SlotExchange::prepare(pair.job().fabric(),
                            {fmt::format("perf/{}/{}", size, pair.job().rank().value() / 2),
                             0,
                             {pair.peer()},
                             {pair.peer()},
                             size,
                             depth}));
  DUNLIN_TRY(slots->connect());
  DUNLIN_ASSIGN(const auto payload, pair.source().slice(0, size));
  ChannelExchange exchange(pair, *slots, payload);
  if (options.checks) DUNLIN_TRY(check(pair, exchange, size));
  const auto streaming = [&](std::uint64_t count, Rate& rate) {
    return stream(pair, exchange, count, rate);
  };
  DUNLIN_ASSIGN(const Row row, ping_pong(pair, exchange, size, plan_for(size, options), streaming));
  // The acknowledgments of the peer may still be on their way.
  DUNLIN_TRY(pair.sync());
  return row;
}

}  // namespace

Status run_channel(const Options& options, Job& job, const Output& output) {
  const std::uint32_t depth = options.depth != 0 ? options.depth : kDepth;
  const std::size_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  DUNLIN_ASSIGN(const auto pair, Pair::create(job, largest));
  DUNLIN_TRY(print_heading(
      job, output,
      fmt::format("channel of {} slots: half a round trip, timed at the even rank; rate of a "
                  "stream; ACKs included",
                  depth),
      kPingPong));
  for (const std::size_t size : options.sizes) {
    DUNLIN_ASSIGN(const Row row, measure(*pair, size, depth, options));
    DUNLIN_TRY(report_pairs(options, job, output, depth, row));
  }
  return pair->sync();
}

}  // namespace dunlin::perf
