// Ping-pong: one side sends and waits for the answer, the other waits and answers. The same loop
// drives the bare limit and the measured exchange in turns, chunk by chunk.
//
// An exchange is a type with send() and receive(), which return a Status.
#pragma once

#include <optional>

#include "tools/dunlin-perf/benchmarks/pair.h"
#include "tools/dunlin-perf/benchmarks/plan.h"
#include "tools/dunlin-perf/report/report.h"
#include "tools/dunlin-perf/report/samples.h"

namespace dunlin::perf {

// Loads a byte, as a reader of the data does first. The compiler cannot drop this load.
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

// Calls `chunk(count)` on both sides until the plan is fulfilled, and returns the number of
// repetitions. It follows a warm-up that began at `began`.
template <typename Chunk>
Result<std::uint64_t> run_chunks(Pair& pair, const Plan& plan, TimePoint began, Chunk&& chunk) {
  const Clock& clock = pair.job().fabric().clock();
  Pacer pacer(plan, (clock.now() - began) / static_cast<std::int64_t>(plan.warmup));
  std::uint64_t done = 0;
  for (;;) {
    DUNLIN_ASSIGN(const std::uint64_t count,
                  pair.agree(pair.leads() ? pacer.next(clock.now()) : 0));
    if (count == 0) return done;
    DUNLIN_TRY(chunk(count));
    done += count;
  }
}

// For ping_pong() without a stream.
struct NoStream {
  Status operator()(std::uint64_t /*count*/, Rate& /*rate*/) const { return Status::ok(); }
};

// Returns the row of this pair, with halves of round trips. `stream(count, rate)` runs on both
// sides after every chunk. On the leader it adds to `rate`, the rate of messages in one direction.
template <typename Exchange, typename Stream = NoStream>
Result<Row> ping_pong(Pair& pair, Exchange& exchange, std::size_t size, const Plan& plan,
                      Stream&& stream = {}) {
  Timer ours(plan.is_each_timed);
  Timer limit(plan.is_each_timed);
  Rate rate;
  Duration elapsed{};
  BarePingPong* const bare = pair.bare();
  const Clock& clock = pair.job().fabric().clock();
  const auto trip = [&] { return round_trip(exchange, pair.leads()); };
  const auto bare_trip = [&] { return round_trip(*bare, pair.leads()); };
  const TimePoint warming = clock.now();
  if (bare != nullptr) DUNLIN_TRY(limit.warm_up(plan.warmup, bare_trip));
  DUNLIN_TRY(ours.warm_up(plan.warmup, trip));
  Rate untold;
  DUNLIN_TRY(stream(plan.warmup, untold));
  const auto chunk = [&](std::uint64_t count) -> Status {
    if (bare != nullptr) DUNLIN_TRY(limit.run(count, bare_trip));
    const TimePoint began = clock.now();
    DUNLIN_TRY(ours.run(count, trip));
    elapsed += clock.now() - began;
    return stream(count, rate);
  };
  Row row;
  row.size = size;
  DUNLIN_ASSIGN(row.iterations, run_chunks(pair, plan, warming, chunk));
  row.take(ours.histogram(), 0.5, plan.is_each_timed);
  if (bare != nullptr) {
    row.take_limit(ours, limit, 0.5);
  }
  row.round_trips_per_s = static_cast<double>(row.iterations) / to_seconds(elapsed);
  if constexpr (!std::is_same_v<std::remove_cvref_t<Stream>, NoStream>) {
    row.take_rate(rate);
  }
  return row;
}

}  // namespace dunlin::perf
