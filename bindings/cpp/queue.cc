#include <dunlin/queue.h>

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "bindings/cpp/internal.h"
#include "transports/channel/queue.h"
#include "transports/channel/slot_exchange.h"

namespace dunlin {
namespace {

constexpr std::int32_t kNone = -1;

// The queue of a peer, found by its rank; null: the peer is no such neighbor.
template <typename Queue>
struct Edges {
  explicit Edges(int size) : of_rank(static_cast<std::size_t>(size), kNone) {}

  void add(Rank peer, Queue queue) {
    of_rank[peer.index()] = static_cast<std::int32_t>(queues.size());
    queues.push_back(std::move(queue));
  }
  Queue* find(Rank peer) {
    if (peer.index() >= of_rank.size() || of_rank[peer.index()] == kNone) return nullptr;
    return &queues[static_cast<std::size_t>(of_rank[peer.index()])];
  }

  std::vector<std::int32_t> of_rank;
  std::vector<Queue> queues;
};

Status no_neighbor(Rank rank, const char* kind) {
  return {Code::kInvalidArgument,
          fmt::format("rank {} is no {} of these queues", rank.value(), kind)};
}

// The completion of a message of send(). If it fires after a deadline, the fabric keeps it.
class Sending final : public transport::KeptUntilDone {
 public:
  bool is_done() const override { return completion.is_done(); }
  Completion completion;
};

}  // namespace

struct Queues::Impl {
  explicit Impl(std::shared_ptr<JobState> state)
      : job(std::move(state)), out(job->fabric->size()), in(job->fabric->size()) {}

  template <typename Ready>
  Status wait(Ready&& ready, Rank peer, const char* what, Duration timeout) {
    return job->fabric->wait(
        ready,
        transport::Awaiting{[&] {
                              return std::vector<transport::Awaited>{{peer, what}};
                            },
                            [&] { return peer; }},
        timeout);
  }

  std::shared_ptr<JobState> job;
  std::unique_ptr<transport::SlotExchange> exchange;
  Edges<transport::SendQueue> out;
  Edges<transport::ReceiveQueue> in;
  std::unique_ptr<Sending> sending = std::make_unique<Sending>();
  // Sends acknowledgments that found no room in release(), in every wait of the process.
  std::optional<transport::Fabric::Task> task;
};

Queues::Queues(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Queues::Queues(Queues&&) noexcept = default;
Queues& Queues::operator=(Queues&&) noexcept = default;
Queues::~Queues() = default;

Result<Queues> Queues::create(Job& job, const QueueOptions& options) {
  auto impl = std::make_unique<Impl>(Internal::state(job));
  transport::SlotOptions slots;
  slots.name = options.name;
  slots.epoch = job.members().epoch;
  slots.in = options.in;
  slots.out = options.out;
  slots.slot_bytes = options.slot_bytes;
  slots.depth = options.depth;
  DUNLIN_ASSIGN(impl->exchange,
                transport::SlotExchange::prepare(*impl->job->fabric, std::move(slots)));
  DUNLIN_TRY(impl->exchange->connect());
  for (transport::OutSlots& edge : impl->exchange->out())
    impl->out.add(edge.to, transport::SendQueue(*impl->exchange, edge));
  for (transport::InSlots& edge : impl->exchange->in())
    impl->in.add(edge.from, transport::ReceiveQueue(*impl->exchange, edge));
  impl->task.emplace(*impl->job->fabric, [queues = &impl->in.queues] {
    for (transport::ReceiveQueue& queue : *queues) (void)queue.progress();
  });
  return Queues(std::move(impl));
}

Status Queues::try_send(Rank to, const MemorySlice& payload, std::uint64_t tag,
                        Completion* completion) {
  transport::SendQueue* const queue = impl_->out.find(to);
  if (queue == nullptr) return no_neighbor(to, "out-neighbor");
  return queue->try_send(Internal::internal(payload), tag, completion);
}

Status Queues::try_send_inline(Rank to, std::span<const std::byte> payload, std::uint64_t tag) {
  transport::SendQueue* const queue = impl_->out.find(to);
  if (queue == nullptr) return no_neighbor(to, "out-neighbor");
  return queue->try_send_inline(payload, tag);
}

Status Queues::send(Rank to, const MemorySlice& payload, std::uint64_t tag, Duration timeout) {
  Completion& sent = impl_->sending->completion;
  sent.reset();
  const TimePoint began = impl_->job->clock.now();
  DUNLIN_TRY(impl_->wait([&] { return try_send(to, payload, tag, &sent); }, to,
                         "a free slot of its queue", timeout));
  const Duration left = timeout - (impl_->job->clock.now() - began);
  Status outcome = impl_->wait([&] { return sent.is_done() ? sent.status() : Status::busy(); }, to,
                               "the completion of a message", left);
  if (!sent.is_done()) {
    impl_->job->fabric->keep_until_done(std::move(impl_->sending));
    impl_->sending = std::make_unique<Sending>();
  }
  return outcome;
}

std::uint64_t Queues::sent(Rank to) const {
  const transport::SendQueue* const queue = impl_->out.find(to);
  return queue == nullptr ? 0 : queue->sent();
}

std::uint64_t Queues::acknowledged(Rank to) const {
  const transport::SendQueue* const queue = impl_->out.find(to);
  return queue == nullptr ? 0 : queue->acknowledged();
}

std::optional<Message> Queues::poll(Rank from) {
  transport::ReceiveQueue* const queue = impl_->in.find(from);
  if (queue == nullptr || !queue->has_message()) return std::nullopt;
  const std::optional<transport::Message> message = queue->poll();
  return Message{message->sequence, message->tag, message->data};
}

Result<Message> Queues::receive(Rank from, Duration timeout) {
  transport::ReceiveQueue* const queue = impl_->in.find(from);
  if (queue == nullptr) return no_neighbor(from, "in-neighbor");
  DUNLIN_TRY(impl_->wait([&] { return queue->has_message() ? Status::ok() : Status::busy(); }, from,
                         "its message", timeout));
  return *poll(from);
}

Status Queues::release(Rank from) {
  transport::ReceiveQueue* const queue = impl_->in.find(from);
  if (queue == nullptr) return no_neighbor(from, "in-neighbor");
  Status status = queue->release();
  return status.is_busy() ? Status::ok() : std::move(status);
}

Status Queues::progress() {
  for (transport::ReceiveQueue& queue : impl_->in.queues) {
    if (Status status = queue.progress(); status.is_error()) return status;
  }
  return Status::ok();
}

}  // namespace dunlin
