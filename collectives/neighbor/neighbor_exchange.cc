#include "collectives/neighbor/neighbor_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>

#include "collectives/neighbor/call.h"
#include "collectives/neighbor/operation.h"
#include "runtime/log.h"

namespace dunlin::collective {

using neighbor::Delivery;
using neighbor::Header;
using neighbor::Intake;
using neighbor::Kind;
using neighbor::Operation;
using neighbor::Pair;
using neighbor::Ring;

namespace {

constexpr std::size_t kSmallestSlot = 4096;

// Slots of a pair for what is small and what is said of the rest.
constexpr std::uint32_t kMessages = 16;

// Where no chunk's slot came free for so long, what stands in them waits for something that may
// come behind it. Rare: sources send in the order in which they were asked.
constexpr Duration kStuckTime = std::chrono::microseconds(200);

// What may lie about for calls that were not made yet, from each peer; it then has to wait.
constexpr std::size_t kMostEarlyBytes = std::size_t{16} << 20;

// Which call of a name, of those with one peer in one direction.
using CallId = std::pair<std::uint64_t, std::uint32_t>;  // key, sequence

// A source's first message of a call: in its slot, or moved out of it because the call is to come.
struct Early {
  Header header;
  std::span<const std::byte> bytes{};
  Bytes moved{};
};

struct Peer {
  Pair pair;
  std::unordered_map<std::uint64_t, std::uint32_t> sent_calls;  // by key, so far
  std::unordered_map<std::uint64_t, std::uint32_t> received_calls;
  std::map<CallId, Early> early;    // data and announcements for calls to come
  std::map<CallId, Header> wanted;  // what the peer is ready for, and we have not begun
  std::size_t early_bytes = 0;
  std::vector<Header> replies;  // that found no room
  std::deque<CallId> asked;     // deliveries of chunks, in the order in which they were asked for
  std::uint64_t stuck_at = 0;   // the chunk that has been the oldest since
  TimePoint stuck_since{};
};

}  // namespace

class NeighborExchange::Impl {
 public:
  Impl(transport::Fabric& fabric, NeighborOptions options)
      : fabric_(fabric),
        options_(std::move(options)),
        peers_(static_cast<std::size_t>(fabric.size())) {}

  ~Impl() {
    for (Peer* const peer : met_) {
      for (auto* const ring : {&peer->pair.messages, &peer->pair.chunks}) {
        if (!(*ring)->is_done()) fabric_.retire(std::move(*ring));
      }
    }
  }

  Result<NeighborRequest> start(const NeighborCall& call, std::vector<Bytes>* gathered);
  Status test(NeighborRequest request);
  Status wait(NeighborRequest request, Duration timeout);
  void progress();
  std::vector<transport::Awaited> awaited(NeighborRequest request) const;
  std::size_t under_way() const { return operations_.size(); }
  Duration deadline() const { return fabric_.config().deadline; }

 private:
  Result<Peer*> peer(Rank rank);
  // Clockwise from us: those who send to many begin with different ones.
  std::vector<WeightedRank> clockwise(std::vector<WeightedRank> ranks) const;

  void receive(Peer& peer);
  void dispatch(Peer& peer, const transport::Message& message);
  void take_chunk(Peer& peer, const transport::Message& message);
  // Of a source's header, for a call that was made already.
  void arrive(Operation& operation, Intake& intake, Early came, std::uint64_t sequence);
  void want(Peer& peer, const Header& header);
  // Later, when there is room.
  void reply(Peer& peer, Header header, Kind kind);
  void ask(Operation& operation, Intake& intake);
  void make_room(Peer& peer);
  void make_room(Ring& ring);
  void end(std::map<std::uint64_t, Operation>::iterator ended);
  void send_chunks(Peer& peer);
  bool connect(Peer& peer);
  void fail_with(const Peer& peer, const Status& why);
  void watch_peers();

  std::pair<Operation*, Intake*> find_intake(const Peer& peer, CallId id);
  std::pair<Operation*, Delivery*> find_delivery(const Peer& peer, CallId id);

  transport::Fabric& fabric_;
  NeighborOptions options_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> met_;
  std::map<std::uint64_t, Operation> operations_;  // by request, in the order of their start
  std::uint64_t last_request_ = 0;
  std::uint32_t last_token_ = 0;
};

std::vector<WeightedRank> NeighborExchange::Impl::clockwise(std::vector<WeightedRank> ranks) const {
  const auto distance = [&](const WeightedRank& each) {
    return (each.rank.value() - fabric_.rank().value() + fabric_.size()) % fabric_.size();
  };
  std::sort(ranks.begin(), ranks.end(), [&](const WeightedRank& a, const WeightedRank& b) {
    return distance(a) < distance(b);
  });
  return ranks;
}

Result<Peer*> NeighborExchange::Impl::peer(Rank rank) {
  std::unique_ptr<Peer>& found = peers_[rank.index()];
  if (found != nullptr) return found.get();
  auto made = std::make_unique<Peer>();
  made->pair.peer = rank;
  DUNLIN_ASSIGN(made->pair.messages,
                Ring::prepare(fabric_, {options_.name + "/messages", rank,
                                        sizeof(Header) + Operation::kSmall, kMessages}));
  DUNLIN_ASSIGN(made->pair.chunks, Ring::prepare(fabric_, {options_.name + "/chunks", rank,
                                                           options_.slot_bytes, options_.depth}));
  found = std::move(made);
  met_.push_back(found.get());
  return found.get();
}

Result<NeighborRequest> NeighborExchange::Impl::start(const NeighborCall& call,
                                                      std::vector<Bytes>* gathered) {
  DUNLIN_TRY(neighbor::check(call, gathered == nullptr, fabric_.rank(), fabric_.size()));
  for (const auto* ranks : {&call.sources, &call.destinations}) {
    for (const WeightedRank& each : *ranks) DUNLIN_TRY(peer(each.rank).status());
  }
  const std::uint64_t number = ++last_request_;
  Operation& operation = operations_[number];
  operation.name = call.name;
  operation.key = neighbor::key_of(call.name);
  operation.type = call.type;
  operation.is_reduction = gathered == nullptr;
  operation.input = static_cast<const std::byte*>(call.input);
  operation.output = static_cast<std::byte*>(call.output);
  operation.bytes = call.count * size_of(call.type);
  operation.self_weight = call.self_weight;
  operation.gathered = gathered;
  if (gathered != nullptr) gathered->assign(call.sources.size(), {});
  const bool is_small = operation.bytes <= Operation::kSmall;

  for (const WeightedRank& to : clockwise(call.destinations)) {
    Peer& peer = *peers_[to.rank.index()];
    Delivery& delivery = operation.deliveries.emplace_back();
    delivery.pair = &peer.pair;
    delivery.weight = to.weight;
    delivery.sequence = ++peer.sent_calls[operation.key];
  }
  for (const WeightedRank& from : call.sources) {
    Peer& peer = *peers_[from.rank.index()];
    Intake& intake = operation.intakes.emplace_back();
    intake.pair = &peer.pair;
    intake.weight = from.weight;
    intake.sequence = ++peer.received_calls[operation.key];
    if (!is_small && operation.is_reduction) intake.token = ++last_token_;
  }
  // What neighbours have said of the call before we made it.
  for (Intake& intake : operation.intakes) {
    Peer& peer = *peers_[intake.pair->peer.index()];
    const auto early = peer.early.find({operation.key, intake.sequence});
    if (early == peer.early.end()) continue;
    Early came = std::move(early->second);
    peer.early.erase(early);
    peer.early_bytes -= came.moved.size();
    arrive(operation, intake, std::move(came), 0);
  }
  for (Delivery& delivery : operation.deliveries) {
    Peer& peer = *peers_[delivery.pair->peer.index()];
    const auto wanted = peer.wanted.find({operation.key, delivery.sequence});
    if (wanted == peer.wanted.end()) continue;
    delivery.token = wanted->second.token;
    peer.asked.push_back(wanted->first);
    peer.wanted.erase(wanted);
  }
  progress();
  return NeighborRequest{number};
}

std::pair<Operation*, Intake*> NeighborExchange::Impl::find_intake(const Peer& peer, CallId id) {
  for (auto& [number, operation] : operations_) {
    if (operation.key != id.first) continue;
    for (Intake& intake : operation.intakes) {
      if (intake.pair == &peer.pair && intake.sequence == id.second) {
        return {&operation, &intake};
      }
    }
  }
  return {nullptr, nullptr};
}

std::pair<Operation*, Delivery*> NeighborExchange::Impl::find_delivery(const Peer& peer,
                                                                       CallId id) {
  for (auto& [number, operation] : operations_) {
    if (operation.key != id.first) continue;
    for (Delivery& delivery : operation.deliveries) {
      if (delivery.pair == &peer.pair && delivery.sequence == id.second) {
        return {&operation, &delivery};
      }
    }
  }
  return {nullptr, nullptr};
}

void NeighborExchange::Impl::arrive(Operation& operation, Intake& intake, Early came,
                                    std::uint64_t sequence) {
  Peer& peer = *peers_[intake.pair->peer.index()];
  if (!operation.failure.is_ok()) {
    if (came.header.kind == Kind::kAnnounce) reply(peer, came.header, Kind::kUnwanted);
  } else if (Status status = operation.accept(intake, came.header); !status.is_ok()) {
    operation.fail(std::move(status));
    reply(peer, came.header, Kind::kReject);
  }
  const bool has_data = came.header.kind == Kind::kEager && came.header.bytes > 0;
  if (!operation.failure.is_ok() || !has_data) {
    if (sequence != 0) intake.pair->messages->release(sequence);
    if (came.header.kind == Kind::kAnnounce && intake.token == 0) intake.token = ++last_token_;
    return;
  }
  neighbor::Piece& piece = intake.pieces.emplace_back();
  piece.ring = sequence == 0 ? nullptr : intake.pair->messages.get();
  piece.sequence = sequence;
  piece.moved = std::move(came.moved);
  piece.bytes = sequence != 0 ? came.bytes : std::span<const std::byte>(piece.moved);
  intake.arrived = piece.bytes.size();
}

void NeighborExchange::Impl::want(Peer& peer, const Header& header) {
  const CallId id{header.key, header.sequence};
  if (const auto [operation, delivery] = find_delivery(peer, id); operation != nullptr) {
    delivery->token = header.token;
    peer.asked.push_back(id);
  } else if (header.sequence > peer.sent_calls[header.key]) {
    peer.wanted.emplace(id, header);  // of a call that is to come
  }
}

void NeighborExchange::Impl::reply(Peer& peer, Header header, Kind kind) {
  header.kind = kind;
  peer.replies.push_back(header);
}

// Says to the source that its data may come.
void NeighborExchange::Impl::ask(Operation& operation, Intake& intake) {
  if (intake.token == 0 || intake.has_asked || !intake.pair->is_connected()) return;
  Header header;
  header.key = operation.key;
  header.sequence = intake.sequence;
  header.token = intake.token;
  header.bytes = operation.bytes;
  header.kind = Kind::kReady;
  header.type = static_cast<std::uint8_t>(operation.type);
  header.is_reduction = operation.is_reduction ? 1 : 0;
  intake.has_asked = intake.pair->messages->send(0, neighbor::bytes_of(header), {}).is_ok();
}

void NeighborExchange::Impl::take_chunk(Peer& peer, const transport::Message& message) {
  for (auto& [number, operation] : operations_) {
    for (Intake& intake : operation.intakes) {
      if (intake.token != message.tag || !operation.failure.is_ok()) continue;
      neighbor::Piece& piece = intake.pieces.emplace_back();
      piece.bytes = message.data;
      piece.ring = peer.pair.chunks.get();
      piece.sequence = message.sequence;
      intake.arrived += message.data.size();
      return;
    }
  }
  peer.pair.chunks->release(message.sequence);  // of a call that was given up
}

void NeighborExchange::Impl::dispatch(Peer& peer, const transport::Message& message) {
  const Header header = neighbor::header_of(message.data);
  const CallId id{header.key, header.sequence};
  switch (header.kind) {
    case Kind::kReady:
      want(peer, header);
      break;
    case Kind::kUnwanted:
      if (const auto [operation, delivery] = find_delivery(peer, id); operation != nullptr) {
        delivery->is_over = true;
      }
      break;
    case Kind::kReject:
      if (const auto [operation, delivery] = find_delivery(peer, id); operation != nullptr) {
        delivery->is_over = true;
        operation->fail(Status(Code::kInvalidArgument,
                               fmt::format("'{}' {}: the neighbour does not expect {} bytes of {}",
                                           operation->name, header.sequence, operation->bytes,
                                           to_string(operation->type)))
                            .with_peer(peer.pair.peer));
      } else {
        DUNLIN_WARN("rank {} has no use for what it was sent: its call differs in size or type",
                    peer.pair.peer.value());
      }
      break;
    case Kind::kEager:
    case Kind::kAnnounce: {
      const std::span<const std::byte> bytes = message.data.subspan(sizeof header);
      if (const auto [operation, intake] = find_intake(peer, id); operation != nullptr) {
        return arrive(*operation, *intake, {header, bytes}, message.sequence);
      }
      if (header.sequence <= peer.received_calls[header.key]) {  // of a call that has ended
        if (header.kind == Kind::kAnnounce) reply(peer, header, Kind::kUnwanted);
        break;
      }
      peer.early.emplace(id, Early{header, {}, Bytes(bytes.begin(), bytes.end())});
      peer.early_bytes += bytes.size();
      break;
    }
  }
  peer.pair.messages->release(message.sequence);
}

void NeighborExchange::Impl::receive(Peer& peer) {
  while (peer.early_bytes <= kMostEarlyBytes) {
    const auto message = peer.pair.messages->poll();
    if (!message) break;
    dispatch(peer, *message);
  }
  while (const auto message = peer.pair.chunks->poll()) take_chunk(peer, *message);
}

void NeighborExchange::Impl::make_room(Peer& peer) {
  Ring& messages = *peer.pair.messages;
  if (messages.is_full()) make_room(messages);
  Ring& chunks = *peer.pair.chunks;
  if (!chunks.is_full()) {
    peer.stuck_at = 0;
  } else if (const TimePoint now = fabric_.clock().now(); peer.stuck_at != chunks.oldest()) {
    peer.stuck_at = chunks.oldest();
    peer.stuck_since = now;
  } else if (now - peer.stuck_since >= kStuckTime) {
    for (std::uint32_t slot = 0; slot < options_.depth; ++slot) make_room(chunks);
  }
}

void NeighborExchange::Impl::make_room(Ring& ring) {
  for (auto& [number, operation] : operations_) {
    if (operation.make_room(ring)) return;
  }
}

void NeighborExchange::Impl::progress() {
  for (Peer* const peer : met_) {
    Pair& pair = peer->pair;
    if (!pair.is_connected() && !connect(*peer)) continue;
    pair.messages->progress();
    pair.chunks->progress();
    while (!peer->replies.empty() &&
           pair.messages->send(0, neighbor::bytes_of(peer->replies.back()), {}).is_ok()) {
      peer->replies.pop_back();
    }
    receive(*peer);
  }
  watch_peers();
  for (auto& [number, operation] : operations_) operation.send();
  for (Peer* const peer : met_) send_chunks(*peer);
  for (auto& [number, operation] : operations_) {
    if (!operation.failure.is_ok()) continue;
    for (Intake& intake : operation.intakes) ask(operation, intake);
    operation.take();
  }
  for (Peer* const peer : met_) {
    if (peer->pair.is_connected()) make_room(*peer);
  }
}

void NeighborExchange::Impl::send_chunks(Peer& peer) {
  while (!peer.asked.empty()) {
    const auto [operation, delivery] = find_delivery(peer, peer.asked.front());
    if (operation != nullptr && !operation->send_chunks(*delivery)) return;
    peer.asked.pop_front();
  }
}

bool NeighborExchange::Impl::connect(Peer& peer) {
  Status status = peer.pair.connect();
  if (status.is_ok() || status.is_busy()) return status.is_ok();
  fail_with(peer, status);
  return false;
}

// Fails what is under way with the peer.
void NeighborExchange::Impl::fail_with(const Peer& peer, const Status& why) {
  for (auto& [number, operation] : operations_) {
    for (Delivery& delivery : operation.deliveries) {
      if (delivery.pair != &peer.pair || delivery.is_over) continue;
      delivery.is_over = true;
      operation.fail(why);
    }
    for (const Intake& intake : operation.intakes) {
      if (intake.pair == &peer.pair && !intake.has_arrived()) operation.fail(why);
    }
  }
}

void NeighborExchange::Impl::watch_peers() {
  PeerTable& table = fabric_.peers();
  if (!table.is_anybody_gone()) return;
  for (const Peer* const peer : met_) {
    const Rank rank = peer->pair.peer;
    if (!table.is_present(rank)) fail_with(*peer, table.check(rank));
  }
}

Status NeighborExchange::Impl::test(NeighborRequest request) {
  progress();
  const auto found = operations_.find(request.number);
  if (found == operations_.end()) {
    return {Code::kNotFound, fmt::format("request {} has ended", request.number)};
  }
  if (!found->second.is_over()) return Status::busy();
  Status outcome = found->second.failure;
  end(found);
  return outcome;
}

void NeighborExchange::Impl::end(std::map<std::uint64_t, Operation>::iterator ended) {
  // Who has announced what we never asked for waits for an answer.
  for (const Intake& intake : ended->second.intakes) {
    const bool is_announced = intake.is_known && intake.bytes > Operation::kSmall;
    if (!is_announced || intake.has_asked) continue;
    Header header;
    header.key = ended->second.key;
    header.sequence = intake.sequence;
    reply(*peers_[intake.pair->peer.index()], header, Kind::kUnwanted);
  }
  operations_.erase(ended);
}

Status NeighborExchange::Impl::wait(NeighborRequest request, Duration timeout) {
  Status status =
      fabric_.wait([&] { return test(request); }, [&] { return awaited(request); }, timeout);
  if (const auto found = operations_.find(request.number); found != operations_.end()) {
    // Why it failed tells more than who did not come for what it still had to send.
    if (!found->second.failure.is_ok()) status = found->second.failure;
    found->second.fail(status);
    end(found);
  }
  return status;
}

std::vector<transport::Awaited> NeighborExchange::Impl::awaited(NeighborRequest request) const {
  std::vector<transport::Awaited> result;
  const auto found = operations_.find(request.number);
  if (found == operations_.end()) return result;
  const Operation& operation = found->second;
  const auto what = [&](std::uint32_t sequence, const char* how, std::size_t part) {
    return fmt::format("'{}' {}: {} {} of {} bytes", operation.name, sequence, how, part,
                       operation.bytes);
  };
  for (const Intake& intake : operation.intakes) {
    if (intake.has_arrived() || !operation.failure.is_ok()) continue;
    result.push_back({intake.pair->peer, what(intake.sequence, "received", intake.arrived)});
  }
  for (const Delivery& delivery : operation.deliveries) {
    if (delivery.is_over) continue;
    result.push_back({delivery.pair->peer, what(delivery.sequence, "sent", delivery.sent)});
  }
  return result;
}

NeighborExchange::NeighborExchange(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NeighborExchange::~NeighborExchange() = default;

Result<std::unique_ptr<NeighborExchange>> NeighborExchange::create(transport::Fabric& fabric,
                                                                   NeighborOptions options) {
  if (options.slot_bytes < kSmallestSlot || options.slot_bytes % transport::kCacheLine != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("slots of {} bytes: at least {}, in whole cache lines",
                              options.slot_bytes, kSmallestSlot));
  }
  auto impl = std::make_unique<Impl>(fabric, std::move(options));
  return std::unique_ptr<NeighborExchange>(new NeighborExchange(std::move(impl)));
}

Result<NeighborRequest> NeighborExchange::start(const NeighborCall& call) {
  return impl_->start(call, nullptr);
}

Result<NeighborRequest> NeighborExchange::start_gather(const NeighborCall& call,
                                                       std::vector<Bytes>& gathered) {
  return impl_->start(call, &gathered);
}

Status NeighborExchange::test(NeighborRequest request) {
  return impl_->test(request);
}

Status NeighborExchange::wait(NeighborRequest request, Duration timeout) {
  return impl_->wait(request, timeout);
}

Status NeighborExchange::run(const NeighborCall& call) {
  DUNLIN_ASSIGN(const NeighborRequest request, start(call));
  return wait(request, impl_->deadline());
}

Status NeighborExchange::gather(const NeighborCall& call, std::vector<Bytes>& gathered) {
  DUNLIN_ASSIGN(const NeighborRequest request, start_gather(call, gathered));
  return wait(request, impl_->deadline());
}

void NeighborExchange::progress() {
  impl_->progress();
}

std::size_t NeighborExchange::under_way() const {
  return impl_->under_way();
}

std::vector<transport::Awaited> NeighborExchange::awaited(NeighborRequest request) const {
  return impl_->awaited(request);
}

}  // namespace dunlin::collective
