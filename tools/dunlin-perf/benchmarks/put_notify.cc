// put-notify: ping-pong of put_notify(). The receiver polls the cell of the notification, then
// reads the last byte that came with it, unless that is on a GPU. notify: the same without data.
// Timed is half a round trip at the leading side; the limit is the ping-pong of a bare cache line.
// In turns with it runs a stream in one direction, `depth` outstanding, until all are visible to
// the peer.
#include <fmt/format.h>

#include <algorithm>

#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/check.h"
#include "tools/dunlin-perf/benchmarks/pair.h"
#include "tools/dunlin-perf/benchmarks/ping_pong.h"
#include "tools/dunlin-perf/benchmarks/window.h"

namespace dunlin::perf {
namespace {

constexpr std::uint64_t kCheckedRounds = 4;

class NotifyExchange {
 public:
  NotifyExchange(Pair& pair, Window& window, transport::LocalSlice from, transport::RemoteSlice to)
      : pair_(pair),
        window_(window),
        from_(from),
        to_(to),
        last_(pair.job().gpu() == nullptr && from.size() != 0
                  ? pair.target().data() + from.size() - 1
                  : nullptr) {}

  Status send() {
    const transport::Notification next = pair_.next_notification();
    return pair_.job().post(pair_.peer(), [&] { return post(next, nullptr); });
  }
  Status receive() {
    DUNLIN_TRY(pair_.await_notification());
    if (last_ != nullptr) touch(last_);
    return Status::ok();
  }
  Status stream(std::uint64_t count, Rate& rate) {
    if (!pair_.leads()) return pair_.await_notifications(count);
    const Clock& clock = pair_.job().fabric().clock();
    const TimePoint began = clock.now();
    for (std::uint64_t i = 0; i < count; ++i) {
      const transport::Notification next = pair_.next_notification();
      DUNLIN_TRY(window_.post(
          pair_, [&](transport::Completion* completion) { return post(next, completion); }));
    }
    DUNLIN_TRY(pair_.flush(transport::Visibility::kRemote));
    DUNLIN_TRY(window_.drain(pair_));
    rate.add(count, clock.now() - began);
    return Status::ok();
  }

 private:
  Status post(const transport::Notification& next, transport::Completion* completion) {
    return from_.size() == 0 ? pair_.lane().notify(next, completion)
                             : pair_.lane().put_notify(from_, to_, next, completion);
  }

  Pair& pair_;
  Window& window_;
  transport::LocalSlice from_;
  transport::RemoteSlice to_;
  const std::byte* last_;  // null: there is none, or the CPU cannot read it
};

// Checks several exchanges of different data in both directions. The memory is reused after a
// flush.
Status check(Pair& pair, NotifyExchange& exchange, std::size_t size) {
  const std::span<std::byte> out{pair.source().data(), size};
  const std::span<const std::byte> in{pair.target().data(), size};
  for (std::uint64_t round = 0; round < kCheckedRounds; ++round) {
    const auto seed_of = [&](bool leader) { return round * 2 + (leader ? 1 : 0) + size; };
    DUNLIN_TRY(fill(pair.job(), out, seed_of(pair.leads())));
    DUNLIN_TRY(exchange.send());
    DUNLIN_TRY(exchange.receive());
    DUNLIN_TRY(verify(pair.job(), in, seed_of(!pair.leads()), "put with notification"));
    DUNLIN_TRY(pair.sync());
  }
  return Status::ok();
}

}  // namespace

Status run_put_notify(const Options& options, Job& job, const Output& output) {
  const std::size_t largest = *std::ranges::max_element(options.sizes);
  Window window(window_depth(options.depth, 0));
  DUNLIN_ASSIGN(const auto pair, Pair::create(job, largest));
  DUNLIN_TRY(print_heading(job, output,
                           fmt::format("{}: half a round trip, timed at the even rank; GB/s and "
                                       "messages of a stream",
                                       to_string(options.bench)),
                           kPingPong));
  for (const std::size_t size : options.sizes) {
    DUNLIN_ASSIGN(const auto from, pair->source().slice(0, size));
    DUNLIN_ASSIGN(const auto to, pair->remote().slice(0, size));
    const std::uint32_t depth = window_depth(options.depth, size);
    window.resize(depth);
    NotifyExchange exchange(*pair, window, from, to);
    if (options.checks && size != 0) DUNLIN_TRY(check(*pair, exchange, size));
    const auto stream = [&](std::uint64_t count, Rate& rate) {
      return exchange.stream(count, rate);
    };
    DUNLIN_ASSIGN(const Row row, ping_pong(*pair, exchange, size, plan_for(size, options), stream));
    DUNLIN_TRY(pair->sync());
    DUNLIN_TRY(report_pairs(options, job, output, depth, row));
  }
  return pair->finish();
}

}  // namespace dunlin::perf
