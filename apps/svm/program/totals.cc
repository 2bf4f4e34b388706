#include "apps/svm/program/totals.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace dunlin::svm {

void Totals::add(const collective::ReduceReport& report, double exchange_seconds) {
  ++exchanges;
  bytes_sent += report.bytes_sent;
  torn += report.torn;
  stale += report.stale;
  exchange_s += exchange_seconds;
  wait_s += to_seconds(report.waited);
  ++inputs[report.inputs];
}

double Totals::inputs_per_reduce() const {
  double sum = 0;
  for (const auto& [count, reduces] : inputs)
    sum += static_cast<double>(count) * static_cast<double>(reduces);
  return exchanges == 0 ? 0 : sum / static_cast<double>(exchanges);
}

Totals& Totals::operator+=(const Totals& other) {
  exchanges += other.exchanges;
  examples += other.examples;
  bytes_sent += other.bytes_sent;
  torn += other.torn;
  stale += other.stale;
  reached_target += other.reached_target;
  compute_s += other.compute_s;
  exchange_s += other.exchange_s;
  wait_s += other.wait_s;
  for (const auto& [count, reduces] : other.inputs) inputs[count] += reduces;
  return *this;
}

Bytes Totals::encode() const {
  ByteWriter writer;
  writer.number(exchanges)
      .number(examples)
      .number(bytes_sent)
      .number(torn)
      .number(stale)
      .number(reached_target);
  for (const double seconds : {compute_s, exchange_s, wait_s})
    writer.number(std::bit_cast<std::uint64_t>(seconds));
  writer.number(static_cast<std::uint32_t>(inputs.size()));
  for (const auto& [count, reduces] : inputs) writer.number(count).number(reduces);
  return writer.take();
}

Result<Totals> Totals::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Totals totals;
  for (auto* field : {&totals.exchanges, &totals.examples, &totals.bytes_sent, &totals.torn,
                      &totals.stale, &totals.reached_target}) {
    *field = reader.number<std::uint64_t>();
  }
  for (auto* field : {&totals.compute_s, &totals.exchange_s, &totals.wait_s}) {
    *field = std::bit_cast<double>(reader.number<std::uint64_t>());
  }
  bool is_ascending = true;
  for (auto left = reader.number<std::uint32_t>(); left > 0 && reader.ok(); --left) {
    const auto count = reader.number<std::uint32_t>();
    is_ascending = is_ascending && (totals.inputs.empty() || totals.inputs.rbegin()->first < count);
    totals.inputs[count] = reader.number<std::uint64_t>();
  }
  const bool has_times =
      std::ranges::all_of(std::array{totals.compute_s, totals.exchange_s, totals.wait_s},
                          [](double seconds) { return std::isfinite(seconds); });
  if (!reader.at_end() || !is_ascending || !has_times)
    return Status(Code::kCorrupted, "malformed totals of a worker");
  return totals;
}

}  // namespace dunlin::svm
