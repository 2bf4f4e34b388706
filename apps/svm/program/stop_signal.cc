#include "apps/svm/program/stop_signal.h"

#include <fmt/format.h>

#include "apps/told_number.h"

namespace dunlin::svm {
namespace {

std::string key(Rank rank) {
  return fmt::format("svm/stop/{}", rank.value());
}

}  // namespace

Result<std::unique_ptr<StopSignal>> StopSignal::create(transport::Fabric& fabric) {
  std::unique_ptr<StopSignal> signal(new StopSignal(fabric));
  DUNLIN_ASSIGN(signal->cell_, fabric.board().allocate(1));
  signal->has_cell_ = true;
  const Bytes offer = ByteWriter().number(static_cast<std::uint32_t>(signal->cell_)).take();
  DUNLIN_TRY(fabric.bootstrap().publish(key(fabric.rank()), offer));
  return signal;
}

StopSignal::~StopSignal() {
  if (has_cell_) fabric_.board().free(cell_, 1);
}

Status StopSignal::announce(std::uint64_t last_exchange, const std::vector<Rank>& members) {
  for (const Rank member : members) {
    DUNLIN_ASSIGN(const Bytes offer,
                  fabric_.bootstrap().lookup_from(member, key(member), fabric_.config().deadline));
    DUNLIN_ASSIGN(const auto cell, told_number<std::uint32_t>(offer, "cell for the stop"));
    transport::Notification stop;
    stop.id = transport::NotifyId(cell);
    stop.sequence = last_exchange;
    DUNLIN_ASSIGN(transport::Link* const link, fabric_.link(member));
    transport::Completion done;
    bool is_notified = false;
    bool is_flushed = false;
    const auto step = [&]() -> Status {
      if (!is_notified) DUNLIN_TRY(link->control().notify(stop, nullptr));
      is_notified = true;
      if (!is_flushed) DUNLIN_TRY(link->control().flush(transport::Visibility::kRemote, &done));
      is_flushed = true;
      return done.is_done() ? done.status() : Status::busy();
    };
    const auto awaited = [&] {
      return std::vector<transport::Awaited>{{member, "the arrival of the stop signal"}};
    };
    const Status status = fabric_.wait(step, awaited, fabric_.config().deadline);
    if (is_flushed && !done.is_done())
      link->control().close();  // a later completion must not write to `done`
    DUNLIN_TRY(status);
  }
  return Status::ok();
}

}  // namespace dunlin::svm
