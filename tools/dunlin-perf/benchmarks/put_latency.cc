// put-latency: ping-pong of plain puts. Each side has a counter in the last byte of what it puts,
// and polls the last byte of its own memory for the next number of its peer, as ib_write_lat and
// ucp_put_lat do. It exists for comparison with them. No transport guarantees that the last byte
// lands last, so this byte says nothing about the others.
#include <algorithm>
#include <atomic>

#include "tools/dunlin-perf/benchmarks/benchmarks.h"
#include "tools/dunlin-perf/benchmarks/check.h"
#include "tools/dunlin-perf/benchmarks/ping_pong.h"

namespace dunlin::perf {
namespace {

class LastByteExchange {
 public:
  // The slices have one byte or more. `posted` must outlive the lanes.
  LastByteExchange(Pair& pair, transport::LocalSlice from, transport::RemoteSlice to,
                   transport::Completion& posted)
      : pair_(pair),
        from_(from),
        to_(to),
        posted_(posted),
        last_(reinterpret_cast<unsigned char*>(pair.target().data() + from.size() - 1)) {}

  // Resets the counters. To be called first, on both sides.
  Status begin() {
    *last_ = 0;
    return pair_.sync();
  }
  Status send() {
    DUNLIN_TRY(settle());
    from_.data()[from_.size() - 1] = std::byte(++sent_);
    posted_.reset();
    has_posted_ = true;
    return pair_.job().post(pair_.peer(), [&] { return pair_.lane().put(from_, to_, &posted_); });
  }
  Status receive() {
    const unsigned char wanted = ++received_;
    const std::atomic_ref<unsigned char> last(*last_);
    Job& job = pair_.job();
    return job.poll(pair_.peer(), "the last byte of a put", job.config().deadline,
                    [&] { return last.load(std::memory_order_acquire) == wanted; });
  }
  // Returns when the memory may be written again.
  Status settle() {
    if (!has_posted_) return Status::ok();
    if (posted_.is_done()) return posted_.status();
    DUNLIN_TRY(pair_.job().await(pair_.peer(), "the completion of a put",
                                 [&] { return posted_.is_done(); }));
    return posted_.status();
  }

 private:
  Pair& pair_;
  transport::LocalSlice from_;
  transport::RemoteSlice to_;
  transport::Completion& posted_;
  unsigned char* last_;
  bool has_posted_ = false;
  unsigned char sent_ = 0;
  unsigned char received_ = 0;
};

}  // namespace

Status run_put_latency(const Options& options, Job& job, const Output& output) {
  const std::size_t largest = *std::ranges::max_element(options.sizes);
  transport::Completion posted;
  DUNLIN_ASSIGN(const auto pair, Pair::create(job, largest + kGuard));
  DUNLIN_TRY(print_heading(job, output,
                           "put, the last byte polled: half a round trip, timed at the even rank",
                           kPingPong));
  for (const std::size_t size : options.sizes) {
    if (options.checks) DUNLIN_TRY(check_puts(*pair, size, true));
    DUNLIN_ASSIGN(const auto from, pair->source().slice(0, size));
    DUNLIN_ASSIGN(const auto to, pair->remote().slice(0, size));
    LastByteExchange exchange(*pair, from, to, posted);
    DUNLIN_TRY(exchange.begin());
    DUNLIN_ASSIGN(const Row row, ping_pong(*pair, exchange, size, plan_for(size, options)));
    DUNLIN_TRY(exchange.settle());
    DUNLIN_TRY(pair->sync());
    DUNLIN_TRY(report_pairs(options, job, output, 0, row));
  }
  return pair->sync();
}

}  // namespace dunlin::perf
