#include "tests/support/chaos/transport.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace dunlin::testing {
namespace {

using transport::Completion;
using transport::LocalSlice;
using transport::Notification;
using transport::RemoteSlice;

class ChaosRegion final : public transport::TransportRegion {
 public:
  explicit ChaosRegion(std::shared_ptr<MemoryRegion> memory) : memory_(std::move(memory)) {}
  std::string_view transport() const override { return "chaos"; }
  Bytes descriptor() const override {
    return ByteWriter().number(reinterpret_cast<std::uintptr_t>(memory_->data())).take();
  }

 private:
  std::shared_ptr<MemoryRegion> memory_;
};

class ChaosRemoteRegion final : public transport::RemoteRegion {
 public:
  ChaosRemoteRegion(const transport::Link& link, std::byte* data, std::size_t size)
      : RemoteRegion(link, size), data_(data) {}
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};

}  // namespace

Status ChaosLane::check_post() {
  if (is_closed_) return Status(Code::kClosed, "the lane is closed").with_peer(link_.peer());
  if (!context_.peers.is_present(link_.peer())) return context_.peers.check(link_.peer());
  if (operations_.size() >= network_.options().queue_depth) return Status::busy();
  return network_.random_chance(network_.options().refusal) ? Status::busy() : Status::ok();
}

bool ChaosLane::is_peer_there() const {
  return context_.peers.is_present(link_.peer()) && network_.board_of(link_.peer()) != nullptr;
}

std::shared_ptr<ChaosLane::Operation> ChaosLane::post(Completion* completion, int pieces) {
  auto operation = std::make_shared<Operation>(Operation{completion, pieces});
  operations_.push_back(operation);
  return operation;
}

void ChaosLane::post_pieces(const std::shared_ptr<Operation>& operation, LocalSlice from,
                            RemoteSlice to, int pieces) {
  const auto* region = static_cast<const ChaosRemoteRegion*>(to.region());
  std::size_t begin = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    const std::size_t end =
        from.size() * static_cast<std::size_t>(piece + 1) / static_cast<std::size_t>(pieces);
    const TimePoint when = network_.random_time();
    last_landing_ = std::max(last_landing_, when);
    network_.at(when, [this, operation, region, from, to, begin, end] {
      if (operation->is_cancelled) return;
      if (is_peer_there() && end > begin) {
        std::memcpy(region->data() + to.offset() + begin, from.data() + begin, end - begin);
      }
      --operation->pieces_left;
    });
    begin = end;
  }
}

void ChaosLane::post_notification(const std::shared_ptr<Operation>& operation,
                                  const Notification& notification) {
  std::array<std::byte, transport::kInlineBytes> copied{};
  std::copy(notification.inline_data.begin(), notification.inline_data.end(), copied.begin());
  last_landing_ = std::max(last_landing_, network_.random_time());
  network_.at(last_landing_, [this, operation, notification, copied] {
    if (operation->is_cancelled) return;
    if (is_peer_there()) {
      Notification carried = notification;
      carried.inline_data = {copied.data(), notification.inline_data.size()};
      network_.board_of(link_.peer())->cell(carried.id).publish(carried);
    }
    --operation->pieces_left;
  });
}

Status ChaosLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  DUNLIN_TRY(check_transfer(link_, from, to));
  DUNLIN_TRY(check_post());
  const int pieces = network_.random_number(1, network_.options().pieces);
  post_pieces(post(completion, pieces), from, to, pieces);
  return Status::ok();
}

Status ChaosLane::put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                             Completion* completion) {
  DUNLIN_TRY(check_transfer(link_, from, to));
  DUNLIN_TRY(check_notification(notification, context_.board.size()));
  DUNLIN_TRY(check_post());
  const int pieces = network_.random_number(1, network_.options().pieces);
  const auto operation = post(completion, pieces + 1);
  post_pieces(operation, from, to, pieces);
  post_notification(operation, notification);
  return Status::ok();
}

Status ChaosLane::notify(const Notification& notification, Completion* completion) {
  DUNLIN_TRY(check_notification(notification, context_.board.size()));
  DUNLIN_TRY(check_post());
  post_notification(post(completion, 1), notification);
  return Status::ok();
}

Status ChaosLane::flush(transport::Visibility, Completion* completion) {
  DUNLIN_TRY(check_post());
  const auto operation = post(completion, 1);
  network_.at(last_landing_, [operation] { --operation->pieces_left; });
  return Status::ok();
}

std::size_t ChaosLane::progress() {
  std::size_t completed = 0;
  const bool is_dead = !context_.peers.is_present(link_.peer());
  // A completion may post again, into the same list.
  for (auto at = operations_.begin(); at != operations_.end();) {
    const std::shared_ptr<Operation> operation = *at;
    if (operation->pieces_left > 0 && !is_dead) {
      ++at;
      continue;
    }
    at = operations_.erase(at);
    operation->is_cancelled = true;
    fire(operation->completion,
         operation->pieces_left > 0 ? context_.peers.check(link_.peer()) : Status::ok());
    ++completed;
  }
  return completed;
}

void ChaosLane::close() noexcept {
  progress();
  is_closed_ = true;
  for (const auto& operation : operations_) {
    operation->is_cancelled = true;
    fire(operation->completion,
         Status(Code::kClosed, "the lane was closed").with_peer(link_.peer()));
  }
  operations_.clear();
}

Result<std::unique_ptr<transport::RemoteRegion>> ChaosLink::import_region(
    std::span<const std::byte> descriptor, std::size_t size) {
  ByteReader reader(descriptor);
  auto* data = reinterpret_cast<std::byte*>(reader.number<std::uintptr_t>());
  if (!reader.at_end())
    return Status(Code::kCorrupted, "malformed chaos descriptor").with_peer(peer());
  return std::unique_ptr<transport::RemoteRegion>(
      std::make_unique<ChaosRemoteRegion>(*this, data, size));
}

ChaosTransport::ChaosTransport(ChaosNetwork& network, const transport::TransportContext& context)
    : network_(network), context_(context) {
  network_.attach(context_.self, &context_.board);
}

ChaosTransport::~ChaosTransport() {
  network_.attach(context_.self, nullptr);
}

Result<std::unique_ptr<transport::Link>> ChaosTransport::connect(Rank peer,
                                                                 std::span<const std::byte>) {
  return std::unique_ptr<transport::Link>(
      std::make_unique<ChaosLink>(network_, peer, context_, links_));
}

Result<std::unique_ptr<transport::TransportRegion>> ChaosTransport::register_memory(
    const std::shared_ptr<MemoryRegion>& memory) {
  return std::unique_ptr<transport::TransportRegion>(std::make_unique<ChaosRegion>(memory));
}

std::size_t ChaosTransport::progress() {
  std::size_t completed = 0;
  for (ChaosLink* link : links_) completed += link->data().progress() + link->control().progress();
  return completed;
}

}  // namespace dunlin::testing
