#include "bindings/nixl/agent.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/bootstrap/service_thread.h"
#include "runtime/gpu/cuda_driver.h"
#include "transports/endpoint/blob.h"

namespace dunlin::nixl {
namespace {

// How long release() waits for what is on its way to a peer that makes no progress.
constexpr Duration kReleaseTime = std::chrono::seconds(5);

// How long a thread that waits leaves the lock to others.
constexpr auto kPause = std::chrono::microseconds(50);

// Notifications that the program has not taken: beyond this, they stay with their senders.
constexpr std::size_t kMostUnread = std::size_t{64} << 20;

// The progress thread looks again and again for this long after the last event, before it sleeps.
constexpr Duration kBusyTime = std::chrono::microseconds(50);
constexpr Duration kLongestSleep = std::chrono::milliseconds(1);

std::string to_string(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool lies_within(const std::byte* address, std::size_t size, const std::byte* base,
                 std::size_t whole) {
  const auto offset =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(base);
  return address >= base && offset <= whole && size <= whole - offset;
}

}  // namespace

Agent::Agent(Config config, AgentOptions options)
    : config_(std::move(config)), name_(options.name), options_(std::move(options)) {}

Result<std::unique_ptr<Agent>> Agent::create(Config config, AgentOptions options) {
  std::unique_ptr<Agent> agent(new Agent(std::move(config), std::move(options)));
  const auto name = as_bytes(agent->name_);
  DUNLIN_ASSIGN(agent->endpoint_,
                transport::Endpoint::create(agent->config_, agent->clock_,
                                            {.greeting = Bytes(name.begin(), name.end())}));
  if (agent->options_.has_progress_thread) {
    DUNLIN_ASSIGN(agent->thread_,
                  bootstrap::start_service_thread(
                      "dunlin-nixl", [raw = agent.get()] { raw->run_progress_thread(); }));
  } else {
    DUNLIN_ASSIGN(agent->keeper_,
                  transport::endpoint::Keeper::start(
                      agent->mutex_, [raw = agent.get()] { (void)raw->progress(); }));
  }
  return agent;
}

Agent::~Agent() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    thread_.join();
  }
  keeper_.reset();
  for (auto& [name, peer] : peers_) peer->remove();
  for (auto& guest : guests_) farewells_.add(std::move(guest));
  farewells_.hurry();
  for (Transfer* const transfer : active_)
    transfer->cancel(Status(Code::kClosed, "the agent has ended"));
  while (!farewells_.is_empty() || !active_.empty()) {
    endpoint_->progress();
    farewells_.progress();
    advance_transfers();
    std::this_thread::sleep_for(kPause);
  }
}

Result<LocalMemory> Agent::register_memory(void* data, std::size_t size, bool is_on_gpu) {
  const std::lock_guard lock(mutex_);
  if (is_on_gpu && gpu_ == nullptr) {
    DUNLIN_ASSIGN(gpu_, load_cuda_driver());
  }
  DUNLIN_ASSIGN(const transport::MemoryId id,
                endpoint_->register_memory(data, size, is_on_gpu ? gpu_ : nullptr));
  return LocalMemory{id, static_cast<std::byte*>(data), size};
}

Status Agent::deregister(const LocalMemory& memory) {
  const std::lock_guard lock(mutex_);
  for (Transfer* const transfer : active_) {
    if (transfer->is_using(memory.id, transfer->peer().name() == name_))
      return {Code::kAlreadyExists, "a transfer that is in progress uses the memory"};
  }
  for (auto& [name, peer] : peers_) peer->forget_memory();
  return endpoint_->deregister(memory.id);
}

Status Agent::add_peer(const std::string& name, std::span<const std::byte> blob) {
  DUNLIN_TRY(transport::endpoint::Blob::decode(blob).status());
  const std::lock_guard lock(mutex_);
  Bytes copy(blob.begin(), blob.end());
  if (const auto known = peers_.find(name); known != peers_.end()) {
    known->second->set_blob(std::move(copy));
  } else {
    peers_.emplace(name, std::make_shared<Peer>(*endpoint_, farewells_, clock_, config_, name_,
                                                name, std::move(copy)));
  }
  return Status::ok();
}

Result<std::shared_ptr<Peer>> Agent::find(const std::string& name) {
  const auto found = peers_.find(name);
  if (found != peers_.end()) return found->second;
  if (name == name_) {
    auto self = std::make_shared<Peer>(*endpoint_, farewells_, clock_, config_, name_, name_,
                                       endpoint_->blob());
    return peers_.emplace(name, std::move(self)).first->second;
  }
  return Status(Code::kNotFound, fmt::format("agent '{}' is not known", name));
}

Status Agent::connect(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  DUNLIN_ASSIGN(const auto found, find(peer));
  found->connect();
  return Status::ok();
}

Status Agent::disconnect(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  DUNLIN_ASSIGN(const auto found, find(peer));
  found->remove();
  peers_.erase(peer);
  return Status::ok();
}

Result<std::unique_ptr<Transfer>> Agent::prepare(Direction direction, const std::string& peer,
                                                 std::span<const Row> rows) {
  const std::lock_guard lock(mutex_);
  DUNLIN_ASSIGN(auto found, find(peer));
  std::vector<Piece> pieces;
  pieces.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (row.remote->agent != peer) {
      return Status(Code::kInvalidArgument,
                    fmt::format("descriptor {} is of agent '{}', the transfer is with '{}'", i,
                                row.remote->agent, peer));
    }
    if (!lies_within(row.local_address, row.size, row.local->base, row.local->size) ||
        !lies_within(row.remote_address, row.size, row.remote->base, row.remote->size)) {
      return Status(
          Code::kOutOfRange,
          fmt::format("descriptor {} of {} bytes does not lie within its memory", i, row.size));
    }
    append(pieces, {row.local->id, static_cast<std::size_t>(row.local_address - row.local->base),
                    row.remote->id, static_cast<std::size_t>(row.remote_address - row.remote->base),
                    row.size});
  }
  return std::make_unique<Transfer>(std::move(found), direction, std::move(pieces));
}

Status Agent::start(Transfer& transfer, std::optional<std::string> notification) {
  const std::lock_guard lock(mutex_);
  if (!transfer.start(std::move(notification)).is_ok())
    return {Code::kAlreadyExists, "the transfer is in progress"};
  Status status = transfer.advance();
  if (status.is_busy()) active_.push_back(&transfer);
  return status;
}

Status Agent::check(Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  if (transfer.is_in_progress()) progress();
  return transfer.advance();
}

void Agent::forget(const RemoteMemory& memory) {
  const std::lock_guard lock(mutex_);
  if (const auto known = peers_.find(memory.agent); known != peers_.end())
    known->second->unload(memory.id);
  forget_unloaded();
}

void Agent::forget_unloaded() {
  for (auto& [name, peer] : peers_) {
    std::erase_if(peer->unloaded(), [&, peer = peer.get()](transport::MemoryId id) {
      const bool is_used = std::ranges::any_of(active_, [&](const Transfer* transfer) {
        return &transfer->peer() == peer && transfer->is_using_remote(id);
      });
      if (!is_used) peer->forget_memory(id);
      return !is_used;
    });
  }
}

void Agent::release(std::unique_ptr<Transfer> transfer) {
  std::unique_lock lock(mutex_);
  transfer->cancel(Status(Code::kClosed, "the transfer was released"));
  const TimePoint limit = clock_.now() + kReleaseTime;
  while (transfer->advance().is_busy()) {
    if (clock_.now() >= limit) transfer->close_connection();
    progress();
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
  std::erase(active_, transfer.get());
}

Result<CostEstimate> Agent::estimate(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  DUNLIN_ASSIGN(const auto found, find(peer));
  return found->cost();
}

Status Agent::notify(const std::string& peer, std::string text) {
  if (text.size() > transport::Connection::kMaxMessage) {
    return {Code::kOutOfRange, fmt::format("a notification of {} bytes; {} are possible",
                                           text.size(), transport::Connection::kMaxMessage)};
  }
  const std::lock_guard lock(mutex_);
  DUNLIN_ASSIGN(const auto found, find(peer));
  found->notify(std::move(text));
  return Status::ok();
}

std::vector<std::pair<std::string, std::string>> Agent::take_notifications() {
  const std::lock_guard lock(mutex_);
  progress();
  notification_bytes_ = 0;
  return std::exchange(notifications_, {});
}

std::size_t Agent::progress() {
  std::size_t events = endpoint_->progress();
  while (auto guest = endpoint_->accept()) {
    guests_.push_back(std::move(guest));
    ++events;
  }
  std::erase_if(guests_, [this](const auto& guest) {
    return take_from(*guest) && guest->status().is_error();
  });
  for (auto& [name, peer] : peers_) peer->progress();
  farewells_.progress();
  events += advance_transfers();
  forget_unloaded();
  return events;
}

bool Agent::take_from(transport::Connection& guest) {
  while (notification_bytes_ < kMostUnread) {
    const auto message = guest.receive();
    if (!message) return true;
    notification_bytes_ += message->size();
    notifications_.emplace_back(to_string(guest.greeting()), to_string(*message));
  }
  return false;
}

std::size_t Agent::advance_transfers() {
  return std::erase_if(active_, [](Transfer* transfer) { return !transfer->advance().is_busy(); });
}

void Agent::run_progress_thread() {
  const Duration interval =
      std::clamp<Duration>(options_.progress_interval, kBusyTime, kLongestSleep);
  TimePoint last_event = clock_.now();
  for (;;) {
    std::vector<pollfd> entries;
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      if (progress() > 0 || !active_.empty()) last_event = clock_.now();
      if (clock_.now() - last_event >= kBusyTime) {
        endpoint_->disarm();  // clears what has woken this thread before
        for (const int fd : endpoint_->wait_fds()) entries.push_back({fd, POLLIN, 0});
      }
    }
    if (entries.empty()) {
      sched_yield();
      continue;
    }
    const auto ns = std::chrono::nanoseconds(interval).count();
    const timespec time{0, ns};
    ppoll(entries.data(), entries.size(), &time, nullptr);
  }
}

}  // namespace dunlin::nixl
