// Ping-pong: one side sends and waits for the answer, the other waits and answers. The same loop
// drives the bare limit and what is measured, in turns, chunk by chunk.
//
// An exchange has send() and receive(), both returning a Status.
#pragma once

#include <optional>

#include "tools/dunlin-perf/pair.h"
#include "tools/dunlin-perf/report.h"

namespace dunlin::perf {

// A load that the compiler can't leave out, as a reader of the data would begin with.
inline void touch(const std::byte* data) {
  const std::byte loaded = *data;
  asm volatile("" : : "r"(static_cast<unsigned char>(loaded)) : "memory");
}

template <typename Exchange>
Status round_trip(Exchange& exchange, bool leads) {
  if (leads) {
    DUNLIN_TRY(exchange.send());
    return exchange.receive();
  }
  DUNLIN_TRY(exchange.receive());
  return exchange.send();
}

// The row of this pair; halves of round trips.
template <typename Exchange>
Result<Row> ping_pong(Pair& pair, Exchange& exchange, std::size_t size, const Plan& plan) {
  Timer ours;
  Timer limit;
  BarePingPong* const bare = pair.bare();
  const auto trip = [&] { return round_trip(exchange, pair.leads()); };
  const auto bare_trip = [&] { return round_trip(*bare, pair.leads()); };
  if (bare != nullptr) DUNLIN_TRY(limit.warm_up(plan.warmup, bare_trip));
  DUNLIN_TRY(ours.warm_up(plan.warmup, trip));
  Duration elapsed{};
  for (std::uint64_t chunk = 0; chunk < plan.chunks; ++chunk) {
    if (bare != nullptr) DUNLIN_TRY(limit.run(plan.per_chunk, bare_trip));
    const TimePoint began = pair.job().fabric().clock().now();
    DUNLIN_TRY(ours.run(plan.per_chunk, trip));
    elapsed += pair.job().fabric().clock().now() - began;
  }
  Row row;
  row.size = size;
  row.iterations = plan.iterations();
  row.ours = ours.summary(0.5);
  if (bare != nullptr) {
    row.limit = limit.summary(0.5);
    row.ratio = paired_ratio(ours, limit);
  }
  row.round_trips_per_s = static_cast<double>(plan.iterations()) / to_seconds(elapsed);
  return row;
}

}  // namespace dunlin::perf
