#include "collectives/elastic/model_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/elastic/snapshot_offer.h"
#include "transports/completion.h"
#include "transports/remote_access.h"

namespace dunlin::collective {
namespace {

// A read has this many bytes at most, so that none of them takes a lane for long.
constexpr std::size_t kReadBytes = std::size_t{8} << 20;

std::string topic_of(const std::string& name) {
  return name + "/snapshot";
}

// One snapshot on its way here. If fetch() gives up, the fabric keeps it until its last read is
// over.
class Transfer final : public transport::KeptUntilDone {
 public:
  Transfer(std::unique_ptr<transport::LocalRegion> memory,
           std::unique_ptr<transport::RemoteRegion> region)
      : memory_(std::move(memory)), region_(std::move(region)) {}

  bool is_done() const override { return !is_posted_ || completion_.is_done(); }
  const std::byte* data() const { return memory_->data(); }

  // Reads a piece, and waits for it.
  Status read(transport::Fabric& fabric, transport::Link& link, std::size_t at, std::size_t bytes,
              Duration timeout) {
    transport::RemoteReads* const reads = link.data().reads();
    if (reads == nullptr) {
      return Status(Code::kUnavailable, fmt::format("transport {} has no remote reads",
                                                    fabric.transport_of(link.peer())))
          .with_peer(link.peer());
    }
    DUNLIN_ASSIGN(const auto from, region_->slice(at, bytes));
    DUNLIN_ASSIGN(const auto to, memory_->slice(at, bytes));
    completion_.reset();
    is_posted_ = false;
    const auto ready = [&]() -> Status {
      if (!is_posted_) {
        DUNLIN_TRY(reads->get(from, to, &completion_));
        is_posted_ = true;
      }
      return completion_.is_done() ? completion_.status() : Status::busy();
    };
    const auto awaited = [&] {
      return std::vector<transport::Awaited>{{link.peer(), "its model"}};
    };
    return fabric.wait(ready, awaited, timeout);
  }

 private:
  std::unique_ptr<transport::LocalRegion> memory_;
  std::unique_ptr<transport::RemoteRegion> region_;
  transport::Completion completion_;
  bool is_posted_ = false;
};

}  // namespace

Result<std::unique_ptr<ModelSnapshot>> ModelSnapshot::offer(transport::Fabric& fabric,
                                                            const std::string& name,
                                                            std::span<const std::byte> model,
                                                            std::uint64_t version) {
  DUNLIN_ASSIGN(auto memory, fabric.allocate(std::max<std::size_t>(model.size(), 1)));
  std::memcpy(memory->data(), model.data(), model.size());
  const SnapshotOffer own{version, model.size(), memory->descriptor()};
  DUNLIN_TRY(
      fabric.bootstrap().publish(Bootstrap::key_of(topic_of(name), fabric.rank()), own.encode()));
  return std::unique_ptr<ModelSnapshot>(new ModelSnapshot(std::move(memory)));
}

Result<std::uint64_t> ModelSnapshot::fetch(transport::Fabric& fabric, const std::string& name,
                                           Rank member, std::span<std::byte> model,
                                           Duration timeout) {
  const TimePoint deadline = fabric.clock().now() + timeout;
  DUNLIN_ASSIGN(const Bytes value, fabric.bootstrap().lookup_from(
                                       member, Bootstrap::key_of(topic_of(name), member), timeout));
  auto offer = SnapshotOffer::decode(value);
  if (!offer) return std::move(offer).status().with_peer(member);
  if (offer->size != model.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("the model of rank {} has {} bytes, the one here {}", member.value(),
                              offer->size, model.size()))
        .with_peer(member);
  }
  DUNLIN_ASSIGN(auto memory, fabric.allocate(std::max<std::size_t>(model.size(), 1)));
  DUNLIN_ASSIGN(auto region, fabric.import_region(member, offer->descriptor));
  DUNLIN_ASSIGN(transport::Link* const link, fabric.link(member));
  auto transfer = std::make_unique<Transfer>(std::move(memory), std::move(region));
  for (std::size_t at = 0; at < model.size(); at += kReadBytes) {
    const std::size_t bytes = std::min(kReadBytes, model.size() - at);
    Status status = transfer->read(fabric, *link, at, bytes, fabric.remaining(deadline));
    if (status) continue;
    if (!transfer->is_done()) fabric.keep_until_done(std::move(transfer));
    return status;
  }
  std::memcpy(model.data(), transfer->data(), model.size());
  return offer->version;
}

std::vector<HandOver> plan_hand_overs(std::span<const Rank> members,
                                      const std::vector<bool>& is_new) {
  std::vector<HandOver> plan;
  if (std::ranges::find(is_new, false) == is_new.end()) return plan;
  for (std::size_t place = 0; place < members.size(); ++place) {
    if (!is_new[place]) continue;
    std::size_t source = place;
    do {
      source = (source + 1) % members.size();
    } while (is_new[source]);
    plan.push_back({members[place], members[source]});
  }
  return plan;
}

Result<std::uint64_t> hand_over_models(transport::Fabric& fabric, const std::string& name,
                                       std::span<const HandOver> plan, std::span<std::byte> model,
                                       std::uint64_t version, Duration timeout) {
  std::unique_ptr<ModelSnapshot> offered;
  for (const HandOver& each : plan) {
    if (each.newcomer == fabric.rank()) {
      DUNLIN_ASSIGN(version, ModelSnapshot::fetch(fabric, name, each.source, model, timeout));
    } else if (each.source == fabric.rank() && !offered) {
      DUNLIN_ASSIGN(offered, ModelSnapshot::offer(fabric, name, model, version));
    }
  }
  // The snapshot stays until all have read theirs.
  DUNLIN_TRY(fabric.bootstrap().barrier(name + "/handed-over", timeout));
  if (offered) fabric.bootstrap().release(Bootstrap::key_of(topic_of(name), fabric.rank()), 1);
  return version;
}

Result<std::uint64_t> share_model(transport::Fabric& fabric, const std::string& name,
                                  const std::vector<Rank>& members, bool is_new,
                                  std::span<std::byte> model, std::uint64_t version,
                                  Duration timeout) {
  constexpr std::byte kOld{0};
  constexpr std::byte kNew{1};
  const std::byte own = is_new ? kNew : kOld;
  DUNLIN_ASSIGN(const Bytes told,
                fabric.bootstrap().gather(name, members, std::span(&own, 1), timeout));
  std::vector<bool> are_new;
  for (const std::byte each : told) are_new.push_back(each == kNew);
  fabric.bootstrap().release(name, members.size());
  if (std::ranges::find(are_new, false) == are_new.end())
    return Status(Code::kUnavailable, "no member of this job is left that has a model");
  return hand_over_models(fabric, name, plan_hand_overs(members, are_new), model, version, timeout);
}

}  // namespace dunlin::collective
