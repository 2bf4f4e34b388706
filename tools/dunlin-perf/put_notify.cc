// put-notify: ping-pong of put_notify(); the receiver polls the notification's cell, then reads the
// last byte that came with it. notify: the same with nothing to put. Timed at the leading side,
// half a round trip; the limit is a bare cache line's ping-pong.
#include <algorithm>

#include "tools/dunlin-perf/benchmarks.h"
#include "tools/dunlin-perf/check.h"
#include "tools/dunlin-perf/pair.h"
#include "tools/dunlin-perf/ping_pong.h"

namespace dunlin::perf {
namespace {

constexpr std::uint64_t kCheckedRounds = 4;

class NotifyExchange {
 public:
  NotifyExchange(Pair& pair, transport::LocalSlice from, transport::RemoteSlice to)
      : pair_(pair),
        from_(from),
        to_(to),
        last_(pair.target().data() + std::max<std::size_t>(from.size(), 1) - 1) {}

  Status send() {
    const transport::Notification next = pair_.next_notification();
    return pair_.job().post(pair_.partner(), [&] {
      return from_.size() == 0 ? pair_.lane().notify(next, nullptr)
                               : pair_.lane().put_notify(from_, to_, next, nullptr);
    });
  }
  Status receive() {
    DUNLIN_TRY(pair_.await_notification());
    if (from_.size() != 0) touch(last_);
    return Status::ok();
  }

 private:
  Pair& pair_;
  transport::LocalSlice from_;
  transport::RemoteSlice to_;
  const std::byte* last_;
};

// Different data both ways, several times; the memory may be reused after the flush.
Status check(Pair& pair, NotifyExchange& exchange, std::size_t size) {
  const std::span<std::byte> out{pair.source().data(), size};
  const std::span<const std::byte> in{pair.target().data(), size};
  for (std::uint64_t round = 0; round < kCheckedRounds; ++round) {
    const auto seed_of = [&](bool leader) { return round * 2 + (leader ? 1 : 0) + size; };
    fill(out, seed_of(pair.leads()));
    DUNLIN_TRY(exchange.send());
    DUNLIN_TRY(exchange.receive());
    DUNLIN_TRY(verify(in, seed_of(!pair.leads()), "put with notification"));
    DUNLIN_TRY(pair.sync());
  }
  return Status::ok();
}

}  // namespace

Status run_put_notify(const Options& options, Job& job, const Output& output) {
  const std::size_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  DUNLIN_ASSIGN(const auto pair, Pair::create(job, largest));
  if (job.is_root()) {
    DUNLIN_TRY(output.text(
        std::string(to_string(options.bench)) +
        ", half a round trip, timed at the even rank; limit: a bare cache line's ping-pong\n" +
        format_heading("ping-pong")));
  }
  for (const std::size_t size : options.sizes) {
    DUNLIN_ASSIGN(const auto from, pair->source().slice(0, size));
    DUNLIN_ASSIGN(const auto to, pair->remote().slice(0, size));
    NotifyExchange exchange(*pair, from, to);
    if (options.checks && size != 0) DUNLIN_TRY(check(*pair, exchange, size));
    DUNLIN_ASSIGN(const Row row, ping_pong(*pair, exchange, size,
                                           plan_for(size, options.iterations, options.warmup)));
    DUNLIN_TRY(pair->sync());
    DUNLIN_TRY(report_pairs(options, job, output, 0, row));
  }
  return pair->sync();
}

}  // namespace dunlin::perf
