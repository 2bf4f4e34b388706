#include "transports/fabric.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/bootstrap/printable.h"
#include "runtime/descriptor_limit.h"
#include "runtime/flight/recorder.h"
#include "runtime/flight/report.h"
#include "runtime/log.h"
#include "runtime/topology.h"
#include "runtime/within.h"
#include "transports/published.h"

namespace dunlin::transport {
namespace {

// The topic under which each rank publishes the addresses of its transports.
constexpr const char* kAddresses = "fabric";

// The key of the address of a transport that opens on demand, for the peer that has asked.
std::string address_key(Rank rank, std::string_view transport, Rank asker) {
  return fmt::format("fabric/{}/{}/{}", rank.value(), transport, asker.value());
}

// Peers and large regions take descriptors, and the usual limit of 1,024 is meant for programs that
// call select().
constexpr std::uint64_t kEnoughDescriptors = 65536;

// How often the bytes of all peers are added up for the flight recorder.
constexpr Duration kRecordPause = std::chrono::milliseconds(200);

// Errors give no shorter time: it would be told as 0.000 s.
constexpr Duration kShortestTold = std::chrono::microseconds(500);

std::string list(const std::vector<Awaited>& awaited, const PeerTable& peers) {
  std::string text;
  for (const Awaited& wait : awaited) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{} from rank {}", wait.what, wait.peer.value());
    if (peers.state(wait.peer) != PeerState::kAlive)
      text += fmt::format(" ({})", peers.describe(wait.peer));
    if (const std::string found = peers.diagnose(wait.peer); !found.empty())
      text += fmt::format(" ({})", found);
  }
  return text;
}

}  // namespace

Fabric::Fabric(Bootstrap& bootstrap, const Config& config, const Clock& clock, Trace* trace)
    : bootstrap_(bootstrap),
      fences_(bootstrap.fences()),
      config_(config),
      clock_(clock),
      trace_(trace),
      counters_(bootstrap.size()),
      addresses_(bootstrap, kAddresses),
      waiter_(*this, clock,
              WaitPolicy::from(config, bootstrap.job().local_size,
                               cores_shared_by(bootstrap.job().local_size))) {}

Result<std::unique_ptr<Fabric>> Fabric::create(Bootstrap& bootstrap, const Config& config,
                                               const Clock& clock, Trace* trace,
                                               const std::vector<TransportFactory>& factories,
                                               std::size_t cells) {
  std::unique_ptr<Fabric> fabric(new Fabric(bootstrap, config, clock, trace));
  DUNLIN_TRY(fabric->start(factories, cells));
  return fabric;
}

Status Fabric::start(const std::vector<TransportFactory>& factories, std::size_t cells) {
  (void)raise_descriptor_limit(kEnoughDescriptors);
  DUNLIN_ASSIGN(board_, NotifyBoard::create(cells == 0 ? cells_for(size()) : cells));
  for (const std::string& name : config_.transports) {
    const auto factory =
        std::find_if(factories.begin(), factories.end(),
                     [&](const TransportFactory& made) { return made.name == name; });
    if (factory == factories.end()) {
      std::string known;
      for (const TransportFactory& made : factories)
        known += (known.empty() ? "" : ", ") + made.name;
      return {Code::kInvalidArgument,
              fmt::format("this build has no transport '{}'; it has: {}", name, known)};
    }
    auto transport = factory->make(TransportContext{
        rank(), bootstrap_.job().local_rank, members_.size(), *board_, peers(), bootstrap_.mail(),
        bootstrap_.key(), counters_, clock_, config_, bootstrap_.job().spans_pid_namespaces});
    if (transport) {
      const bool is_open = !(*transport)->opens_on_demand();
      members_.push_back({std::move(transport).value(), is_open, {}, {}, false, {}});
    } else {
      left_out_ += fmt::format("{} does not work here: {}; ", name, transport.status().message());
    }
  }
  if (members_.empty()) return {Code::kUnavailable, "no transport works here: " + left_out_};
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) return Status::from_errno("eventfd", errno);
  collect_wait_fds();
  listener_ = peers().add_listener([this] { wake(); });
  guard_ = fences_.add_guard([this] { wake(); });
  chore_ = bootstrap_.add_chore([this] { progress(); });
  return publish_addresses();
}

Status Fabric::publish_addresses() {
  PublishedAddresses own;
  for (const Member& member : members_) {
    own.of.push_back({std::string(member.transport->name()), !member.is_open,
                      member.is_open ? member.transport->address() : member.transport->outline()});
  }
  return bootstrap_.publish(Bootstrap::key_of(addresses_.topic(), rank()), own.encode());
}

void Fabric::collect_wait_fds() {
  wait_fds_ = {wake_fd_};
  if (const int mail = bootstrap_.mail().fd(MailTopic::kFabric); mail >= 0)
    wait_fds_.push_back(mail);
  for (const Member& member : members_) {
    const auto& fds = member.transport->wait_fds();
    wait_fds_.insert(wait_fds_.end(), fds.begin(), fds.end());
  }
}

Status Fabric::open(Member& member, Rank peer, std::span<const std::byte> peers_outline) {
  Transport& transport = *member.transport;
  Status status = member.failure;
  if (status.is_ok() && !member.is_open) {
    status = member.failure = transport.open();
    member.is_open = status.is_ok();
    if (member.is_open) collect_wait_fds();
    // Nothing of them has arrived yet, so this is done at once.
    for (const Rank gone : revoked_) {
      if (status.is_ok()) status = transport.revoke(gone);
    }
  }
  if (status.is_ok()) status = transport.face(peers_outline);
  if (peer != rank() && member.told.insert(peer).second) {
    DUNLIN_TRY(bootstrap_.post(address_key(rank(), transport.name(), peer),
                               status.is_ok() ? transport.address() : Bytes()));
  }
  return status;
}

void Fabric::take_requests() {
  while (const auto message = bootstrap_.mail().receive(MailTopic::kFabric)) {
    const auto request = OpenRequest::decode(message->text);
    if (!request) continue;
    const auto asked = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
      return member.transport->name() == request->transport;
    });
    // Otherwise it is meant for a former fabric of this process.
    if (asked == members_.end()) continue;
    if (Status status = open(*asked, message->from, request->outline); !status.is_ok()) {
      DUNLIN_WARN("rank {} asks for a connection over {}, which does not work here: {}",
                  message->from.value(), request->transport, status.to_string());
    }
  }
}

Result<Bytes> Fabric::ask_for_address(Member& member, Rank peer, TimePoint deadline) {
  if (peer == rank()) return member.transport->address();
  const std::string_view name = member.transport->name();
  if (member.asked.insert(peer).second) {
    const OpenRequest request{std::string(name), member.transport->outline()};
    static_assert(Transport::kLargestOutline + 64 <= Mail::kLargestMessage);
    bootstrap_.mail().send(MailTopic::kFabric, peer, request.encode());
  }
  auto address = bootstrap_.lookup_from(peer, address_key(peer, name, rank()), remaining(deadline));
  if (address || address.status().code() != Code::kDeadlineExceeded) return address;
  const bool is_stalled = peers().state(peer) == PeerState::kStalled;
  return Status(is_stalled ? Code::kPeerStalled : Code::kDeadlineExceeded,
                fmt::format("rank {}{} has made no progress since it was asked to open {}",
                            peer.value(), is_stalled ? ", which is stalled," : "", name))
      .with_peer(peer);
}

Fabric::~Fabric() {
  if (chore_ != 0) bootstrap_.remove_chore(chore_);
  for (auto& [peer, connection] : connections_) {
    connection.link->data().close();
    connection.link->control().close();
  }
  kept_.clear();
  dropped_.clear();
  connections_.clear();
  members_.clear();
  if (guard_ != 0) fences_.remove_guard(guard_);
  if (listener_ >= 0) peers().remove_listener(listener_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

Result<Link*> Fabric::link(Rank peer, Duration timeout) {
  DUNLIN_TRY(fences_.check());
  if (const auto found = connections_.find(peer); found != connections_.end())
    return found->second.link.get();
  if (peer.value() < 0 || peer.value() >= size()) {
    return Status(Code::kOutOfRange, fmt::format("rank {} in a job of {}", peer.value(), size()));
  }
  DUNLIN_TRY(peers().check(peer));
  DUNLIN_ASSIGN(Connection made, connect(peer, clock_.now() + timeout));
  DUNLIN_DEBUG("rank {}: {}", peer.value(), made.explanation);
  addresses_.drop(peer);
  carriers_[peer] = made.transport;
  return connections_.emplace(peer, std::move(made)).first->second.link.get();
}

Status Fabric::fetch_addresses(std::span<const Rank> peers, Duration timeout) {
  std::vector<Rank> unconnected;
  for (const Rank peer : peers) {
    if (!connections_.contains(peer)) unconnected.push_back(peer);
  }
  return addresses_.fetch(unconnected, timeout);
}

Result<Fabric::Connection> Fabric::connect(Rank peer, TimePoint deadline) {
  DUNLIN_ASSIGN(const Bytes published_there, addresses_.lookup(peer, remaining(deadline)));
  DUNLIN_ASSIGN(const auto addresses, PublishedAddresses::decode(published_there));
  std::string refusals = left_out_;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Transport& transport = *members_[i].transport;
    const PublishedAddress* const published = addresses.find(transport.name());
    if (published == nullptr) {
      refusals += fmt::format("{}: the peer does not have it; ", transport.name());
      continue;
    }
    Bytes address = published->address;
    // Opening this end first keeps ranks that ask each other from waiting for each other.
    Status refusal = published->is_on_demand ? open(members_[i], peer, address) : Status::ok();
    if (refusal.is_ok() && published->is_on_demand) {
      DUNLIN_ASSIGN(address, ask_for_address(members_[i], peer, deadline));
      if (address.empty()) refusal = {Code::kUnavailable, "it does not work at the peer"};
    }
    if (refusal.is_ok()) refusal = transport.reach(peer, address);
    if (refusal.is_ok()) {
      auto link = transport.connect(peer, address);
      if (link) {
        Connection connection;
        connection.link = std::move(link).value();
        connection.transport = i;
        connection.explanation =
            fmt::format("{}{}", transport.name(), refusals.empty() ? "" : " (" + refusals + ")");
        return connection;
      }
      refusal = std::move(link).status();
    }
    refusals += fmt::format("{}: {}; ", transport.name(), refusal.message());
  }
  return Status(Code::kUnavailable, "no transport reaches the peer: " + refusals).with_peer(peer);
}

void Fabric::drop_link(Rank peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  found->second.link->data().close();
  found->second.link->control().close();
  dropped_.push_back(std::move(found->second.link));
  connections_.erase(found);
  release_done();
}

void Fabric::release_done() {
  std::erase_if(kept_, [](const auto& object) {
    object->settle();
    return object->is_done();
  });
  if (kept_.empty()) dropped_.clear();
}

std::string Fabric::explain(Rank peer) {
  const auto made = link(peer);
  return made ? connections_.at(peer).explanation : made.status().to_string();
}

std::string_view Fabric::transport_of(Rank peer) const {
  const auto found = connections_.find(peer);
  return found == connections_.end() ? std::string_view()
                                     : members_[found->second.transport].transport->name();
}

Result<std::unique_ptr<LocalRegion>> Fabric::register_memory(std::shared_ptr<MemoryRegion> memory) {
  std::vector<std::unique_ptr<TransportRegion>> regions;
  std::string refusals;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    auto region = members_[i].transport->register_memory(memory);
    const std::string_view name = members_[i].transport->name();
    const Code code = region.status().code();
    const bool is_full = code == Code::kResourceExhausted && !is_connected_over(i);
    if (!region && code != Code::kUnavailable && !is_full) {
      return std::move(region).status().with_context(
          fmt::format("registering memory with {}", name));
    }
    if (!region) refusals += fmt::format("{}: {}; ", name, region.status().message());
    if (is_full && !std::exchange(members_[i].is_full, true)) {
      DUNLIN_WARN(
          "no memory can be registered with {}; peers that nothing else reaches will fail "
          "to access it: {}",
          name, region.status().message());
    }
    regions.push_back(region ? std::move(region).value() : nullptr);
  }
  if (std::all_of(regions.begin(), regions.end(),
                  [](const auto& region) { return region == nullptr; })) {
    return Status(Code::kUnavailable, "no transport can register the memory: " + refusals);
  }
  return std::make_unique<LocalRegion>(std::move(memory), std::move(regions), std::move(refusals));
}

bool Fabric::is_connected_over(std::size_t transport) const {
  return std::any_of(connections_.begin(), connections_.end(), [transport](const auto& entry) {
    return entry.second.transport == transport;
  });
}

Result<std::unique_ptr<LocalRegion>> Fabric::allocate(std::size_t size, DeviceOrder order,
                                                      Pages pages) {
  MemoryRegion::Options options;
  options.huge_pages = config_.huge_pages;
  options.device_order = order;
  options.pages = pages;
  options.pool = &memory_files_;
  DUNLIN_ASSIGN(auto memory, MemoryRegion::allocate(size, options));
  return register_memory(std::move(memory));
}

Result<std::unique_ptr<LocalRegion>> Fabric::allocate_on_gpu(std::shared_ptr<GpuDriver> driver,
                                                             int device, std::size_t size) {
  DUNLIN_ASSIGN(auto memory, MemoryRegion::allocate_on_gpu(std::move(driver), device, size));
  return register_memory(std::move(memory));
}

Result<std::unique_ptr<RemoteRegion>> Fabric::import_region(Rank peer,
                                                            std::span<const std::byte> descriptor) {
  DUNLIN_ASSIGN(Link* const to, link(peer));
  const std::string_view wanted = transport_of(peer);
  auto region = RegionDescriptor::decode(descriptor);
  if (!region) return std::move(region).status().with_peer(peer);
  const Bytes* const own = region->find(wanted);
  if (own == nullptr) {
    return Status(Code::kUnavailable, fmt::format("the region is not registered with {}: {}",
                                                  wanted, bootstrap::printable(region->refusals)))
        .with_peer(peer);
  }
  return to->import_region(*own, region->size);
}

void Fabric::wake() {
  eventfd_write(wake_fd_, 1);
}

// Hot, so that the linker places it next to the other functions that every message passes through.
[[gnu::hot]] std::size_t Fabric::progress() {
  std::size_t events = 0;
  // Polling an idle transport in vain can take as long as a cache line takes to arrive here.
  const bool polls_all = ++turns_ % kTurnsPerIdlePoll == 0;
  for (const Member& member : members_) {
    if (polls_all || member.transport->is_in_use()) events += member.transport->progress();
  }
  if (!bootstrap_.mail().is_empty(MailTopic::kFabric)) take_requests();
  if (fences_.has_due() || fences_.is_cut_off()) [[unlikely]] {
    close_lanes();
    revoke_access();
  }
  if (!kept_.empty()) release_done();
  if (!tasks_.empty()) run_tasks();
  return events;
}

void Fabric::revoke_access() {
  for (const Rank gone : fences_.due(guard_)) {
    revoked_.insert(gone);
    const bool is_done =
        std::all_of(members_.begin(), members_.end(), [gone](const Member& member) {
          return !member.is_open || member.transport->revoke(gone).is_ok();
        });
    if (is_done) fences_.confirm(guard_, gone);
  }
}

void Fabric::close_lanes() {
  if (!fences_.is_cut_off() || std::exchange(is_cut_off_, true)) return;
  DUNLIN_WARN("rank {} closes its lanes: {}", rank().value(), fences_.check().message());
  for (auto& [peer, connection] : connections_) {
    connection.link->data().close();
    connection.link->control().close();
  }
}

void Fabric::run_tasks() {
  const Within running(is_running_tasks_);
  if (running.was_within()) return;
  for (const Task* const task : tasks_) task->work_();
}

Fabric::Task::Task(Fabric& fabric, std::function<void()> work)
    : fabric_(fabric), work_(std::move(work)) {
  fabric_.tasks_.push_back(this);
}

Fabric::Task::~Task() {
  std::erase(fabric_.tasks_, this);
}

bool Fabric::arm() {
  turns_ =
      kTurnsPerIdlePoll - 1;  // the next progress() polls all, as an idle one may prevent sleep
  bool is_quiet = bootstrap_.mail().is_empty(MailTopic::kFabric);
  for (const Member& member : members_) is_quiet = member.transport->arm() && is_quiet;
  return is_quiet && stay_awake_ == 0;
}

void Fabric::disarm() {
  for (const Member& member : members_) member.transport->disarm();
  eventfd_t news;
  (void)eventfd_read(wake_fd_, &news);  // EAGAIN if wake() was not called
}

void Fabric::begin_step(std::uint64_t number) {
  if (flight_ != nullptr) flight_->step(number);
}

void Fabric::record_bytes_now(TimePoint now) {
  next_record_ = now + kRecordPause;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    std::uint64_t put = 0;
    std::uint64_t got = 0;
    for (const auto& [peer, transport] : carriers_) {
      if (transport != i) continue;
      put += counters_.peer(peer).put_bytes;
      got += counters_.peer(peer).get_bytes;
    }
    if (put + got > 0) flight_->bytes(members_[i].transport->name(), put, got);
  }
}

Status Fabric::report_death(const std::vector<Awaited>& awaited, TimePoint began) {
  const PeerTable& peers = bootstrap_.peers();
  for (const Awaited& wait : awaited) {
    if (peers.is_present(wait.peer)) continue;
    Status death = Status(Code::kPeerDead,
                          fmt::format("rank {} waited {:.3f} s for {} from rank {}, which is {}",
                                      rank().value(), to_seconds(clock_.now() - began), wait.what,
                                      wait.peer.value(), peers.describe(wait.peer)))
                       .with_peer(wait.peer);
    if (flight_ != nullptr) flight_->fail(death);
    return death;
  }
  return Status::busy();
}

Status Fabric::report_deadline(const std::vector<Awaited>& awaited, TimePoint began) {
  const PeerTable& peers = bootstrap_.peers();
  const bool is_stalled = std::any_of(awaited.begin(), awaited.end(), [&](const Awaited& wait) {
    return peers.state(wait.peer) == PeerState::kStalled;
  });
  // A wait of no time was for an operation that has been in progress for longer.
  const Duration waited = clock_.now() - began;
  const std::string how_long =
      waited < kShortestTold ? "still waits" : fmt::format("waited {:.3f} s", to_seconds(waited));
  Status status(is_stalled ? Code::kPeerStalled : Code::kDeadlineExceeded,
                fmt::format("rank {} {} for {}", rank().value(), how_long, list(awaited, peers)));
  // Other ranks of this host may tell why. Shorter waits are polls of callers that wait again.
  if (flight_ != nullptr && !awaited.empty() && waited >= config_.deadline)
    flight::report_deadline(*flight_, status);
  DUNLIN_INFO("counters when the deadline passed:\n{}", counters_.dump());
  if (!awaited.empty()) return std::move(status).with_peer(awaited.front().peer);
  return status;
}

}  // namespace dunlin::transport
