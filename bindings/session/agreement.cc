#include "bindings/session/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/neighbor/check_neighbors.h"
#include "runtime/fnv.h"

namespace dunlin::binding {

using collective::Collective;
using collective::DataType;

Result<std::vector<std::uint8_t>> gather(Session& session, const CommunicatorHandle& communicator,
                                         std::vector<std::uint8_t> ours, std::string_view name,
                                         const Session::Interrupt& interrupt) {
  struct Memory {
    std::vector<std::uint8_t> ours;
    std::vector<std::uint8_t> all;
  };
  const auto size = static_cast<std::size_t>(communicator->size);
  const auto memory = std::make_shared<Memory>();
  memory->all.resize(size * ours.size());
  memory->ours = std::move(ours);
  collective::Call call{Collective::kAllGather,
                        memory->ours.data(),
                        memory->all.data(),
                        memory->ours.size(),
                        {DataType::kUint8}};
  call.name = name;
  std::shared_ptr<SessionOperation> unfinished;
  Status status = session.run(communicator, call, interrupt, &unfinished);
  if (unfinished) unfinished->hold(memory);
  DUNLIN_TRY(std::move(status));
  return std::move(memory->all);
}

namespace {

// The first member of a communicator that has another outcome than this one, and which.
struct Difference {
  std::size_t rank = 0;  // in the communicator
  std::string why;
};

Result<std::optional<Difference>> compare(Session& session, const CommunicatorHandle& communicator,
                                          Status own, std::string_view alike,
                                          const Session::Interrupt& interrupt) {
  std::vector<std::uint8_t> ours = {
      static_cast<std::uint8_t>(own.is_error() ? own.code() : Code::kOk)};
  const std::uint64_t digest = hash_of(alike);
  for (int shift = 0; shift < 64; shift += 8) {
    ours.push_back(static_cast<std::uint8_t>(digest >> shift));
  }
  auto gathered = gather(session, communicator, ours, "", interrupt);
  if (own.is_error()) return own;
  DUNLIN_ASSIGN(const auto all, std::move(gathered));
  for (std::size_t rank = 0; rank * ours.size() < all.size(); ++rank) {
    const auto theirs = std::span(all).subspan(rank * ours.size(), ours.size());
    if (std::ranges::equal(theirs, ours)) continue;
    const auto code = static_cast<Code>(theirs[0]);
    const char* const why = code == Code::kOk ? "its arguments differ" : to_string(code);
    return std::optional<Difference>({rank, why});
  }
  return std::optional<Difference>();
}

}  // namespace

Status agree(Session& session, Status own, std::string_view what, std::string_view alike,
             const Session::Interrupt& interrupt) {
  DUNLIN_ASSIGN(const auto other,
                compare(session, session.world(), std::move(own), alike, interrupt));
  if (!other) return Status::ok();
  const Rank peer = session.members()[other->rank];
  return Status(Code::kInvalidArgument,
                fmt::format("{} failed at rank {}: {}", what, peer.value(), other->why))
      .with_peer(peer);
}

Status agree(Session& session, const CommunicatorHandle& communicator, Status own,
             std::string_view what, std::string_view alike, const Session::Interrupt& interrupt) {
  if (communicator == session.world())
    return agree(session, std::move(own), what, alike, interrupt);
  DUNLIN_ASSIGN(const auto other, compare(session, communicator, std::move(own), alike, interrupt));
  if (!other) return Status::ok();
  return {Code::kInvalidArgument, fmt::format("{} failed at rank {} of the communicator: {}", what,
                                              other->rank, other->why)};
}

Status attach_together(Session& session, const Session::MakeResident& make,
                       const std::function<Status()>& connect, std::string_view what,
                       std::string_view alike, const Session::Interrupt& interrupt) {
  std::shared_ptr<Resident> made;
  Status status = without_exceptions(what, [&] {
    return session.attach([&](transport::Fabric& fabric) -> Result<std::shared_ptr<Resident>> {
      DUNLIN_ASSIGN(made, make(fabric));
      return made;
    });
  });
  status = agree(session, std::move(status), what, alike, interrupt);
  if (status.is_ok())
    status = agree(session, without_exceptions(what, connect), what, {}, interrupt);
  if (!status.is_ok() && made) session.detach(*made);
  return status;
}

Status check_neighbors(Session& session, const collective::NeighborCall& call,
                       const Session::Interrupt& interrupt) {
  DUNLIN_TRY(session.check_fixed("a check of all ranks' neighbors"));
  const JobInfo& job = session.job();
  Status own = collective::neighbor::check(call, false, job.rank, job.size);
  DUNLIN_ASSIGN(const auto all,
                gather(session, session.world(),
                       collective::neighbor::claims_of(call, job.rank, job.size), "", interrupt));
  if (own.is_error()) return own;
  return collective::neighbor::compare_claims(all, job.size);
}

}  // namespace dunlin::binding
