#include "transports/sim/options.h"

#include <fmt/format.h>

#include <cmath>

namespace dunlin::transport::sim {
namespace {

Status wrong(std::string message) {
  return {Code::kInvalidArgument, "simulated network: " + std::move(message)};
}

Status check_link(Route route, const LinkClass& link) {
  if (link.latency < Duration::zero()) {
    return wrong(fmt::format("a {} latency of {} ns", to_string(route), link.latency.count()));
  }
  if (!(link.bandwidth >= 0) || !std::isfinite(link.bandwidth)) {
    return wrong(fmt::format("a {} bandwidth of {} B/s", to_string(route), link.bandwidth));
  }
  return Status::ok();
}

Status check_hostility(const Hostility& hostility) {
  if (hostility.longest_delay < Duration::zero()) return wrong("a negative longest delay");
  if (hostility.pieces < 1 || hostility.pieces > kMostPieces) {
    return wrong(fmt::format("puts in up to {} pieces; 1 to {} are possible", hostility.pieces,
                             kMostPieces));
  }
  if (!(hostility.refusal >= 0 && hostility.refusal < 1)) {
    return wrong(
        fmt::format("a share of {} refused posts; less than 1 is possible", hostility.refusal));
  }
  return Status::ok();
}

}  // namespace

const char* to_string(Route route) {
  switch (route) {
    case Route::kHost:
      return "host";
    case Route::kRack:
      return "rack";
    case Route::kSpine:
      return "spine";
  }
  return "unknown";
}

Status Options::check() const {
  if (ranks < 1) return wrong(fmt::format("{} ranks", ranks));
  if (ranks_per_host < 1) return wrong(fmt::format("{} ranks per host", ranks_per_host));
  if (hosts_per_rack < 0) return wrong(fmt::format("{} hosts per rack", hosts_per_rack));
  for (const Route kind : {Route::kHost, Route::kRack, Route::kSpine}) {
    DUNLIN_TRY(check_link(kind, link(kind)));
  }
  if (!(oversubscription >= 0) || !std::isfinite(oversubscription)) {
    return wrong(fmt::format("an oversubscription of {}", oversubscription));
  }
  if (overhead < Duration::zero()) return wrong("a negative overhead");
  if (jitter.scale < Duration::zero()) return wrong("a negative jitter");
  if (queue_depth < 1) return wrong("a queue depth of 0");
  if (loss_notice < Duration::zero()) return wrong("a loss known before it happens");
  for (const Straggler& straggler : stragglers) {
    if (straggler.rank.value() < 0 || straggler.rank.value() >= ranks) {
      return wrong(fmt::format("straggler {} of {} ranks", straggler.rank.value(), ranks));
    }
    if (!(straggler.factor > 0) || !std::isfinite(straggler.factor)) {
      return wrong(fmt::format("a straggler's factor of {}", straggler.factor));
    }
  }
  return hostility ? check_hostility(*hostility) : Status::ok();
}

}  // namespace dunlin::transport::sim
