#include "runtime/flight/metrics.h"

#include <fmt/format.h>

#include <functional>

namespace dunlin::flight {
namespace {

// A rank of a large job may have waited for hundreds of peers, and each makes a time series.
constexpr std::size_t kMostPeers = 16;

double seconds(Duration time) {
  return std::chrono::duration<double>(time).count();
}

// Texts from records are printable ASCII; these two characters mean something in labels.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char each : text) {
    if (each == '"' || each == '\\') result += '\\';
    result += each;
  }
  return result;
}

class Exposition {
 public:
  explicit Exposition(const std::vector<Snapshot>& ranks) : ranks_(ranks) {}

  void family(const char* name, const char* type, const char* help,
              const std::function<void(const Snapshot&)>& samples) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    for (const Snapshot& rank : ranks_) samples(rank);
  }
  // Prometheus has a label "job" of its own.
  void sample(const Snapshot& rank, double value, const std::string& labels = "") {
    text_ += fmt::format("{}{{dunlin_job=\"{}\",rank=\"{}\"{}}} {}\n", name_, escaped(rank.job),
                         rank.rank.value(), labels, value);
  }
  std::string take() { return std::move(text_); }

 private:
  const std::vector<Snapshot>& ranks_;
  const char* name_ = "";
  std::string text_;
};

}  // namespace

std::string metrics_of(const std::vector<Snapshot>& ranks) {
  Exposition all(ranks);
  all.family("dunlin_rank_info", "gauge", "The rank's process; always 1.", [&](const Snapshot& r) {
    all.sample(r, 1,
               fmt::format(",host=\"{}\",program=\"{}\",pid=\"{}\",size=\"{}\"", escaped(r.host),
                           escaped(r.program), r.pid, r.size));
  });
  all.family("dunlin_rank_up", "gauge", "Whether the rank runs and has not left the job.",
             [&](const Snapshot& r) { all.sample(r, r.is_over() ? 0 : 1); });
  all.family("dunlin_elapsed_seconds_total", "counter", "Time since the rank joined the job.",
             [&](const Snapshot& r) { all.sample(r, seconds(r.elapsed())); });
  all.family("dunlin_wait_seconds_total", "counter", "Time in which the rank waited for peers.",
             [&](const Snapshot& r) { all.sample(r, seconds(r.waited)); });
  all.family("dunlin_peer_wait_seconds_total", "counter",
             "Time in which the rank waited for this peer, for the longest ones.",
             [&](const Snapshot& r) {
               for (std::size_t i = 0; i < r.peers.size() && i < kMostPeers; ++i) {
                 all.sample(r, seconds(r.peers[i].waited),
                            fmt::format(",peer=\"{}\"", r.peers[i].peer.value()));
               }
             });
  all.family("dunlin_operations_total", "counter", "Collective operations completed.",
             [&](const Snapshot& r) { all.sample(r, static_cast<double>(r.operations)); });
  all.family("dunlin_steps_total", "counter", "Training steps completed.",
             [&](const Snapshot& r) { all.sample(r, static_cast<double>(r.steps)); });
  all.family("dunlin_step_seconds_total", "counter", "Time of these steps.",
             [&](const Snapshot& r) { all.sample(r, seconds(r.step_time)); });
  all.family("dunlin_step_own_seconds_total", "counter",
             "Time of these steps without waits for peers.",
             [&](const Snapshot& r) { all.sample(r, seconds(r.own_time)); });
  all.family("dunlin_transport_put_bytes_total", "counter", "Bytes put to peers.",
             [&](const Snapshot& r) {
               for (const TransportUse& each : r.transports) {
                 all.sample(r, static_cast<double>(each.put),
                            fmt::format(",transport=\"{}\"", escaped(each.name)));
               }
             });
  all.family("dunlin_transport_get_bytes_total", "counter", "Bytes got from peers.",
             [&](const Snapshot& r) {
               for (const TransportUse& each : r.transports) {
                 all.sample(r, static_cast<double>(each.got),
                            fmt::format(",transport=\"{}\"", escaped(each.name)));
               }
             });
  return all.take();
}

std::string metrics_of_files(const std::vector<std::string>& paths) {
  const SteadyClock clock;
  std::vector<Snapshot> ranks;
  for (const std::string& path : paths) {
    if (const auto record = Record::open(path)) ranks.push_back(record->snapshot(clock.now()));
  }
  return metrics_of(ranks);
}

}  // namespace dunlin::flight
