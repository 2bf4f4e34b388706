#include "apps/cnn/program/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "apps/job.h"
#include "collectives/communicator/communicator.h"
#include "runtime/log.h"

namespace dunlin::cnn {
namespace {

using collective::DataType;
using collective::ReduceOp;

static_assert(std::is_trivially_copyable_v<Totals>);
constexpr std::size_t kFields = sizeof(Totals) / sizeof(double);

}  // namespace

// A job of too few ranks is refused later; until then it has a worker.
Team::Team(transport::Fabric& fabric, Members& members, const training::MethodOptions& method)
    : fabric_(fabric),
      members_(members),
      servers_(has_servers(method.kind) ? std::min(method.servers, members.founders() - 1) : 0) {}

Result<Bytes> Team::broadcast(const std::string& what, const Bytes& value, Duration timeout) {
  return broadcast_from_rank_0(fabric_, "cnn/" + what, what, value, timeout);
}

Status Team::gather(const std::string& what, Duration timeout) {
  return fabric_.bootstrap().barrier("cnn/" + what, timeout);
}

Status Team::gather_survivors() {
  const std::size_t before = members().size();
  DUNLIN_TRY(members_.reform());
  members_.drop_links();
  DUNLIN_WARN("concluding with {} of {} ranks", members().size(), before);
  return Status::ok();
}

Result<std::vector<Totals>> Team::combine(const Totals& own, std::vector<float>& values) {
  DUNLIN_ASSIGN(const auto communicator,
                collective::Communicator::create(fabric_, {.name = "cnn", .members = members()}));
  const auto ranks = static_cast<std::size_t>(std::max(size(), members().back().value() + 1));
  // Every rank fills its own element; the others are 0.
  std::vector<Totals> all(ranks);
  all[static_cast<std::size_t>(rank())] = own;
  DUNLIN_TRY(communicator->all_reduce(all.data(), all.data(), ranks * kFields,
                                      {DataType::kFloat64, ReduceOp::kSum}));
  if (!is_worker()) std::ranges::fill(values, 0.0F);
  DUNLIN_TRY(communicator->all_reduce(values.data(), values.data(), values.size(),
                                      {DataType::kFloat32, ReduceOp::kSum}));
  const auto workers =
      std::ranges::count_if(members(), [this](Rank member) { return is_worker(member); });
  for (float& value : values) value /= static_cast<float>(std::max<std::ptrdiff_t>(1, workers));
  // The communicator may go when no rank needs it any more.
  DUNLIN_TRY(gather("combined", fabric_.config().deadline));
  return all;
}

}  // namespace dunlin::cnn
