#include "tests/guest/soak/cycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace dunlin::soak {

using transport::Awaited;
using transport::kBothLanes;
using transport::kLaneKinds;
using transport::Lane;

// Stepping ---------------------------------------------------------------------------------------

Status Cycle::step() {
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    Peer& peer = peers_[rank];
    // Checking every byte takes time.
    if (rank > 0) fabric_->progress();
    const auto all = [&](auto& ones, const char* what) {
      for (std::size_t i = 0; i < ones.size(); ++i) {
        Status status = ones[i].step();
        if (!status.is_ok())
          return std::move(status).with_context(fmt::format("{} {}, rank {}", what, i, rank));
      }
      return Status::ok();
    };
    DUNLIN_TRY(all(peer.receivers, "from lane"));
    DUNLIN_TRY(all(peer.senders, "to lane"));
    DUNLIN_TRY(all(peer.probers, "access"));
  }
  return Status::ok();
}

template <typename IsOver>
Status Cycle::step_until(IsOver&& is_over, Duration timeout, const char* what) {
  return fabric_->wait(
      [&]() -> Status {
        DUNLIN_TRY(step());
        return is_over() ? Status::ok() : Status::busy();
      },
      [&] { return describe(what); }, timeout);
}

std::vector<Awaited> Cycle::describe(const char* what) const {
  std::vector<Awaited> awaited;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const Peer& peer = peers_[rank];
    std::string text = what;
    for (std::size_t lane = 0; lane < peer.senders.size(); ++lane) {
      if (!peer.senders[lane].is_idle())
        text += fmt::format(", lane {}: {}", lane, peer.senders[lane].describe());
      text += fmt::format(", {} received", peer.receivers[lane].messages());
    }
    for (const Prober& prober : peer.probers)
      if (!prober.is_idle()) text += ", a get or an atomic";
    awaited.push_back({Rank(static_cast<int>(rank)), std::move(text)});
  }
  return awaited;
}

Result<std::vector<std::uint64_t>> Cycle::meet(const std::vector<std::uint64_t>& numbers) {
  ++meetings_;
  std::size_t told = 0;
  Status status = Status::ok();
  std::vector<bool> has_come(ranks());
  std::vector<std::uint64_t> brought(ranks());
  DUNLIN_TRY(step_until(
      [&] {
        for (; told < ranks(); ++told) {
          transport::Notification news;
          news.id = meeting_cell(peers_[told].cells, fabric_->rank());
          news.sequence = meetings_;
          news.tag = numbers[told];
          status = peers_[told].link->control().notify(news, nullptr);
          if (!status.is_ok()) break;
        }
        for (std::size_t rank = 0; rank < ranks(); ++rank) {
          const auto& cell =
              fabric_->board().cell(meeting_cell(cells_, Rank(static_cast<int>(rank))));
          if (has_come[rank] || cell.sequence.load(std::memory_order_acquire) != meetings_)
            continue;
          has_come[rank] = true;
          brought[rank] = cell.tag;
        }
        const bool is_met =
            told == ranks() && std::count(has_come.begin(), has_come.end(), false) == 0;
        return is_met || status.is_error();
      },
      options_.timeout, "a meeting"));
  DUNLIN_TRY(status);
  return brought;
}

// Rounds -----------------------------------------------------------------------------------------

Status Cycle::run() {
  for (std::uint64_t round = 0; round < options_.rounds; ++round) DUNLIN_TRY(run_round(round));
  return finish();
}

Status Cycle::run_round(std::uint64_t round) {
  DUNLIN_TRY(exchange_libraries(round));
  const TimePoint end = clock_.now() + options_.round;
  DUNLIN_TRY(step_until([&] { return clock_.now() >= end; }, options_.round + options_.timeout,
                        "messages"));
  for (Peer& peer : peers_)
    for (Prober& prober : peer.probers) prober.stop();
  const auto are_idle = [](const Peer& peer) {
    return std::all_of(peer.probers.begin(), peer.probers.end(),
                       [](const Prober& one) { return one.is_idle(); });
  };
  DUNLIN_TRY(step_until([&] { return std::all_of(peers_.begin(), peers_.end(), are_idle); },
                        options_.timeout, "gets and atomics"));
  std::vector<std::uint64_t> added(ranks());
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    for (const Prober& prober : peers_[rank].probers) added[rank] += prober.added();
  DUNLIN_ASSIGN(const auto counted, meet(added));
  DUNLIN_TRY(check_counters(std::accumulate(counted.begin(), counted.end(), std::uint64_t{0})));
  for (Peer& peer : peers_) {
    for (Prober& prober : peer.probers) prober.set_library(nullptr, 0);
    peer.library.reset();
  }
  library_.reset();
  return Status::ok();
}

Status Cycle::exchange_libraries(std::uint64_t round) {
  // Shared memory cannot access memory that the fabric has not allocated.
  const bool wraps = round % 2 == 1 && fabric_->config().transports.front() != "shm";
  const Rank self = fabric_->rank();
  DUNLIN_ASSIGN(library_, Library::create(*fabric_, seed_of_library(self, round), wraps));
  const auto key = [&](Rank owner) { return fmt::format("library {}/{}", round, owner.value()); };
  DUNLIN_TRY(bootstrap_.publish(key(self), library_->region().descriptor()));
  // Lookups do not progress the fabric, but after meet() there is nothing to wait for.
  DUNLIN_TRY(meet(std::vector<std::uint64_t>(ranks())).status());
  for (std::size_t index = 0; index < ranks(); ++index) {
    const Rank owner(static_cast<int>(index));
    Peer& peer = peers_[index];
    DUNLIN_ASSIGN(const Bytes descriptor, bootstrap_.lookup(key(owner), options_.timeout));
    DUNLIN_ASSIGN(peer.library, fabric_->import_region(owner, descriptor));
    for (Prober& prober : peer.probers)
      prober.set_library(peer.library.get(), seed_of_library(owner, round));
  }
  return Status::ok();
}

// Reads the counters by the same means as peers write them, which may differ from the CPU's.
Status Cycle::check_counters(std::uint64_t expected) {
  Peer& self = peers_[fabric_->rank().index()];
  if (self.link->data().reads() == nullptr) return Status::ok();
  transport::Completion completion;
  DUNLIN_ASSIGN(const auto from, self.library->slice(0, kCounterBytes));
  DUNLIN_ASSIGN(const auto to, landing_->slice(0, kCounterBytes));
  Status status = Status::busy();
  DUNLIN_TRY(step_until(
      [&] {
        if (status.is_busy()) status = self.link->data().reads()->get(from, to, &completion);
        return status.is_error() || completion.is_done();
      },
      options_.timeout, "the counters"));
  DUNLIN_TRY(status);
  DUNLIN_TRY(completion.status());
  const auto* const counters = reinterpret_cast<const std::uint64_t*>(to.data());
  const std::uint64_t found = std::accumulate(counters, counters + kCounters, std::uint64_t{0});
  if (found == expected) return Status::ok();
  return {Code::kCorrupted,
          fmt::format("the counters sum up to {}, and {} was added", found, expected)};
}

// Ending -----------------------------------------------------------------------------------------

Status Cycle::finish() {
  for (Peer& peer : peers_)
    for (Sender& sender : peer.senders) sender.stop();
  const auto are_idle = [](const auto& ones) {
    return std::all_of(ones.begin(), ones.end(), [](const auto& one) { return one.is_idle(); });
  };
  DUNLIN_TRY(step_until(
      [&] {
        return std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
          return are_idle(peer.senders) && are_idle(peer.receivers);
        });
      },
      options_.timeout, "the last messages"));
  DUNLIN_TRY(meet(std::vector<std::uint64_t>(ranks())).status());
  DUNLIN_TRY(flush());
  DUNLIN_TRY(part());
  is_finished_ = true;
  return Status::ok();
}

// Makes progress until no rank needs it any more; a flush of another rank may need it.
Status Cycle::part() {
  const auto key = [](std::size_t rank) { return fmt::format("done/{}", rank); };
  DUNLIN_TRY(bootstrap_.publish(key(fabric_->rank().index()), {}));
  std::size_t done = 0;
  return step_until(
      [&] {
        while (done < ranks() && bootstrap_.lookup(key(done), std::chrono::milliseconds(1))) ++done;
        return done == ranks();
      },
      options_.timeout, "its end");
}

// Waits until everything that this rank has posted has landed.
Status Cycle::flush() {
  struct Flush {
    Lane* lane = nullptr;
    Status status = Status::busy();
    transport::Completion completion;
  };
  std::vector<Flush> flushes(ranks() * kLaneKinds);
  for (std::size_t i = 0; i < flushes.size(); ++i)
    flushes[i].lane = &lane_of(*peers_[i / kLaneKinds].link, kBothLanes[i % kLaneKinds]);
  DUNLIN_TRY(step_until(
      [&] {
        return std::all_of(flushes.begin(), flushes.end(), [](Flush& one) {
          if (one.status.is_busy())
            one.status = one.lane->flush(transport::Visibility::kRemote, &one.completion);
          return one.status.is_error() || one.completion.is_done();
        });
      },
      options_.timeout, "a flush"));
  for (const Flush& one : flushes) {
    DUNLIN_TRY(one.status);
    DUNLIN_TRY(one.completion.status());
  }
  return Status::ok();
}

Totals Cycle::totals() const {
  Totals totals;
  for (const Peer& peer : peers_) {
    for (const Receiver& receiver : peer.receivers) {
      totals.messages += receiver.messages();
      totals.message_bytes += receiver.bytes();
    }
    for (const Prober& prober : peer.probers) {
      totals.gets += prober.gets();
      totals.get_bytes += prober.bytes();
      totals.atomics += prober.atomics();
    }
  }
  return totals;
}

}  // namespace dunlin::soak
