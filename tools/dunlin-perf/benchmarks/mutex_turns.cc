#include "tools/dunlin-perf/benchmarks/mutex_turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace dunlin::perf {

using transport::Completion;
using transport::Visibility;

Result<std::unique_ptr<MutexTurns>> MutexTurns::create(Job& job) {
  std::unique_ptr<MutexTurns> turns(new MutexTurns(job));
  DUNLIN_TRY(turns->start());
  return turns;
}

Status MutexTurns::start() {
  const auto key = [](Rank rank) { return fmt::format("perf/mutex-turns/{}", rank.value()); };
  DUNLIN_ASSIGN(own_, job_.fabric().allocate(sizeof(std::uint64_t)));
  Bootstrap& bootstrap = job_.fabric().bootstrap();
  DUNLIN_TRY(bootstrap.publish(key(job_.rank()), own_->descriptor()));
  others_.resize(static_cast<std::size_t>(job_.size()));
  for (const Rank rank : job_.ranks()) {
    if (rank == job_.rank()) continue;
    DUNLIN_ASSIGN(const Bytes descriptor,
                  bootstrap.lookup_from(rank, key(rank), job_.config().deadline));
    DUNLIN_ASSIGN(others_[rank.index()], job_.fabric().import_region(rank, descriptor));
  }
  return Status::ok();
}

Status MutexTurns::take() {
  // Other processes write it, while they hold the mutex.
  const std::uint64_t before = std::atomic_ref(count()).load(std::memory_order_acquire);
  if (last_ != 0) gaps_.push_back(before + 1 - last_);
  last_ = before + 1;
  std::atomic_ref(count()).store(last_, std::memory_order_release);
  DUNLIN_ASSIGN(const auto from, own_->slice(0, sizeof(std::uint64_t)));
  for (const Rank rank : job_.ranks()) {
    if (rank == job_.rank()) continue;
    DUNLIN_ASSIGN(transport::Link* const link, job_.fabric().link(rank));
    DUNLIN_ASSIGN(const auto to, others_[rank.index()]->slice(0, sizeof(std::uint64_t)));
    DUNLIN_TRY(job_.post(rank, [&] { return link->data().put(from, to, nullptr); }));
  }
  for (const Rank rank : job_.ranks()) {
    if (rank == job_.rank()) continue;
    DUNLIN_ASSIGN(transport::Link* const link, job_.fabric().link(rank));
    Completion seen;
    DUNLIN_TRY(job_.post(rank, [&] { return link->data().flush(Visibility::kRemote, &seen); }));
    const Status status = job_.await(rank, "a flush", [&] { return seen.is_done(); });
    if (!status.is_ok()) {
      job_.fabric().drop_link(rank);  // the completion is about to be destroyed
      return status;
    }
    DUNLIN_TRY(seen.status());
  }
  return Status::ok();
}

Result<MutexTurns::Figures> MutexTurns::finish(std::uint64_t each) {
  Figures figures;
  figures.turns = each * static_cast<std::uint64_t>(job_.size());
  if (count() != figures.turns)
    return Status(Code::kCorrupted, fmt::format("{} turns were taken, {} counted: a mutex that "
                                                "several hold at the same time",
                                                figures.turns, count()));
  std::ranges::sort(gaps_);
  const auto quantile = [&](double share) -> std::uint64_t {
    if (gaps_.empty()) return 0;
    return gaps_[static_cast<std::size_t>(share * static_cast<double>(gaps_.size() - 1))];
  };
  DUNLIN_ASSIGN(const auto texts,
                job_.gather(job_.ranks(),
                            fmt::format("{} {} {}", quantile(0.5), quantile(0.99), quantile(1))));
  for (const std::string& text : texts) {
    unsigned long long median = 0;
    unsigned long long p99 = 0;
    unsigned long long most = 0;
    if (std::sscanf(text.c_str(), "%llu %llu %llu", &median, &p99, &most) != 3)
      return Status(Code::kCorrupted, fmt::format("malformed figures: '{}'", text));
    figures.median = std::max<std::uint64_t>(figures.median, median);
    figures.p99 = std::max<std::uint64_t>(figures.p99, p99);
    figures.most = std::max<std::uint64_t>(figures.most, most);
  }
  return figures;
}

}  // namespace dunlin::perf
