#include "runtime/flight/recorder.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/flight/folder.h"
#include "runtime/flight/metrics.h"
#include "runtime/flight/metrics_server.h"
#include "runtime/flight/seqlock.h"
#include "runtime/flight/wait_record.h"
#include "runtime/log.h"

namespace dunlin::flight {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kRelease = std::memory_order_release;

std::uint64_t ns_of(TimePoint time) {
  return static_cast<std::uint64_t>(time.time_since_epoch().count());
}

std::uint64_t ns_of(Duration time) {
  return time > Duration::zero() ? static_cast<std::uint64_t>(time.count()) : 0;
}

void put(Word& word, std::uint64_t value) {
  word.store(value, kRelaxed);
}

}  // namespace

Recorder::Recorder(Options options, std::string path, const Clock& clock, File* file)
    : options_(std::move(options)),
      path_(std::move(path)),
      clock_(clock),
      file_(file),
      pid_(getpid()) {}

Result<std::unique_ptr<Recorder>> Recorder::create(const Options& options, const Clock& clock) {
  const RecordIdentity identity{options.job, options.rank, options.size, clock.now()};
  DUNLIN_ASSIGN(auto made, create_record(options.folder, identity));
  return std::unique_ptr<Recorder>(new Recorder(options, std::move(made.path), clock, made.file));
}

Result<std::unique_ptr<Recorder>> Recorder::open(const Config& config, Bootstrap& bootstrap,
                                                 const Clock& clock) {
  const bool is_wanted =
      config.flight != "off" && bootstrap.size() > 1 && bootstrap.job().launcher != "in-process";
  std::unique_ptr<Recorder> recorder;
  if (is_wanted) {
    Options options;
    options.job = job_name(bootstrap.job().job_id, bootstrap.key());
    const std::string base = base_folder(config);
    options.folder = base + "/" + options.job;
    options.rank = bootstrap.rank();
    options.size = bootstrap.size();
    options.keeps = config.flight_keep;
    if (bootstrap.job().local_rank == 0) remove_old_jobs(base, options.job);
    auto made = create(options, clock);
    if (made) recorder = std::move(made).value();
    if (!made) {
      // The user has named the folder, or nobody has asked for a record.
      const bool is_wrong = !config.flight.empty() && bootstrap.job().local_rank == 0;
      const LogLevel level = is_wrong ? LogLevel::kWarn : LogLevel::kInfo;
      DUNLIN_LOG(level, "no flight record (DUNLIN_FLIGHT): {}", made.status().to_string());
    }
  }
  if (config.metrics.empty()) return recorder;
  auto address =
      MetricsAddress::parse(config.metrics, bootstrap.rank(), bootstrap.job().local_rank);
  if (!address) return std::move(address).status().with_context("DUNLIN_METRICS");
  // A job does not fail because something else uses the port.
  if (Status status = recorder ? recorder->serve(*address)
                               : Status(Code::kUnavailable, "there is no flight record");
      !status.is_ok()) {
    DUNLIN_WARN("no metrics (DUNLIN_METRICS): {}", status.to_string());
  }
  return recorder;
}

Status Recorder::serve(const MetricsAddress& address) {
  DUNLIN_ASSIGN(metrics_,
                MetricsServer::start(address, [path = path_] { return metrics_of_files({path}); }));
  return Status::ok();
}

Recorder::~Recorder() {
  if (getpid() != pid_) {
    // The thread and the socket are the parent's.
    (void)metrics_.release();
  } else {
    metrics_.reset();
    close_run();
    {
      const SeqlockUpdate update(file_->now.sequence);
      put(file_->now.awaited, 0);
      put(file_->now.phase, static_cast<std::uint64_t>(has_left_ ? Phase::kEnded : Phase::kFailed));
    }
    put(file_->counts.seen_ns, ns_of(clock_.now()));
    if (has_left_ && !is_kept_ && !options_.keeps) remove_record(path_);
  }
  munmap(file_, sizeof(File));
}

std::uint8_t Recorder::index_of(const char* name) {
  const std::uint64_t used = file_->names_used.load(kRelaxed);
  const char* const* const end = names_ + used;
  const char* const* const found = std::find_if(
      static_cast<const char* const*>(names_), end,
      [name](const char* known) { return known == name || std::strcmp(known, name) == 0; });
  const auto index = static_cast<std::uint8_t>(found - names_);
  if (found != end) return index;
  // The last name stands for the rest.
  if (index == kNames - 1) name = "other";
  if (index >= kNames) return kNames - 1;
  names_[index] = name;
  std::strncpy(file_->names[index], name, kNameBytes - 1);
  // Pairs with the reader, which trusts only names below this number.
  file_->names_used.store(used + 1, kRelease);
  return index;
}

void Recorder::describe(const char* name, std::uint64_t bytes) {
  name_ = name;
  bytes_ = bytes;
  is_dated_ = false;
  const SeqlockUpdate update(file_->now.sequence);
  put(file_->now.operation, index_of(name));
  put(file_->now.bytes, bytes);
  put(file_->now.since_ns, 0);
}

void Recorder::begin_run(const char* name, std::uint64_t bytes) {
  close_run();
  const std::uint64_t began =
      is_dated_ && name == name_ ? file_->now.since_ns.load(kRelaxed) : seen();
  run_name_ = name;
  run_bytes_ = bytes;
  run_count_ = 1;
  run_event_ =
      push(EventKind::kOperation, began, seen(), bytes, {.name = index_of(name), .count = 1});
}

void Recorder::close_run() {
  if (run_count_ > 1 && file_->counts.events.load(kRelaxed) - run_event_ <= kEvents) {
    const Event& event = file_->events[run_event_ % kEvents];
    Packed fields = unpack(event.packed.load(kRelaxed));
    fields.count = static_cast<std::uint32_t>(std::min(run_count_, kMostPacked));
    write(run_event_, event.began_ns.load(kRelaxed), seen(), run_bytes_, pack(fields));
  }
  run_count_ = 0;
  run_name_ = nullptr;
}

void Recorder::write(std::uint64_t number, std::uint64_t began, std::uint64_t ended,
                     std::uint64_t value, std::uint64_t packed) {
  Event& event = file_->events[number % kEvents];
  put(event.number, 0);
  std::atomic_thread_fence(kRelease);
  put(event.began_ns, began);
  put(event.ended_ns, ended);
  put(event.value, value);
  put(event.packed, packed);
  event.number.store(number + 1, kRelease);
}

std::uint64_t Recorder::push(EventKind kind, std::uint64_t began, std::uint64_t ended,
                             std::uint64_t value, const Packed& fields) {
  Packed all = fields;
  all.kind = kind;
  const std::uint64_t number = file_->counts.events.load(kRelaxed);
  write(number, began, ended, value, pack(all));
  put(file_->counts.events, number + 1);
  return number;
}

void Recorder::see(TimePoint now) {
  put(file_->counts.seen_ns, ns_of(now));
  note_step();
}

// The events of steps are written here, as only the owner thread writes events.
void Recorder::note_step() {
  const std::uint64_t steps = file_->steps.steps.load(kRelaxed);
  if (steps == noted_step_) return;
  noted_step_ = steps;
  close_run();
  push(EventKind::kStep, file_->steps.began_ns.load(kRelaxed), seen(),
       file_->steps.number.load(kRelaxed), {});
}

void Recorder::step(std::uint64_t number) {
  Steps& steps = file_->steps;
  const std::uint64_t now = ns_of(clock_.now());
  const std::uint64_t waited = file_->counts.waited_ns.load(kRelaxed);
  const std::uint64_t began = steps.began_ns.load(kRelaxed);
  const SeqlockUpdate update(steps.sequence);
  if (began != 0) {
    const std::uint64_t took = now - began;
    const std::uint64_t idle = std::min(waited - steps.waited_ns.load(kRelaxed), took);
    bump(steps.steps);
    add(steps.total_ns, took);
    add(steps.own_ns, took - idle);
  }
  put(steps.number, number);
  put(steps.began_ns, now);
  put(steps.waited_ns, waited);
}

void Recorder::wait_for(Rank peer, TimePoint since, TimePoint now) {
  see(now);
  if (peer == awaited_) return;
  const SeqlockUpdate move(file_->now.wait_sequence);
  if (awaited_ != Rank()) charge(awaited_, ns_of(now - awaited_since_));
  awaited_ = peer;
  awaited_since_ = since;
  const SeqlockUpdate update(file_->now.sequence);
  const bool is_in_operation =
      file_->counts.begun.load(kRelaxed) != file_->counts.ended.load(kRelaxed);
  if (!is_dated_ && is_in_operation) {
    put(file_->now.since_ns, ns_of(since));
    is_dated_ = true;
  }
  put(file_->now.awaited, peer == Rank() ? 0 : static_cast<std::uint64_t>(peer.value()) + 1);
  put(file_->now.wait_since_ns, peer == Rank() ? 0 : ns_of(since));
}

void Recorder::end_wait(TimePoint now) {
  wait_for(Rank(), now, now);
}

void Recorder::charge(Rank peer, std::uint64_t waited_ns) {
  close_run();
  const std::uint64_t now = seen();
  const std::uint64_t tag = static_cast<std::uint64_t>(peer.value()) + 1;
  push(EventKind::kWait, now - std::min(now, waited_ns), now, 0,
       {.peer = static_cast<std::uint32_t>(std::min(tag, kMostPacked))});
  bump(file_->counts.waits);
  add(file_->counts.waited_ns, waited_ns);
  PeerWait* const set = file_->peers + tag % kPeerSets * kPeersPerSet;
  PeerWait* const end = set + kPeersPerSet;
  PeerWait* entry = std::find_if(set, end, [tag](const PeerWait& each) {
    const std::uint64_t rank = each.rank.load(kRelaxed);
    return rank == tag || rank == 0;
  });
  const bool is_full = entry == end;
  if (is_full) {
    entry = std::min_element(set, end, [](const PeerWait& a, const PeerWait& b) {
      return a.waited_ns.load(kRelaxed) < b.waited_ns.load(kRelaxed);
    });
    add(file_->counts.others_waited_ns, entry->waited_ns.load(kRelaxed));
    add(file_->counts.others_waits, entry->waits.load(kRelaxed));
  }
  const SeqlockUpdate update(entry->sequence);
  if (is_full) {
    put(entry->waited_ns, 0);
    put(entry->waits, 0);
  }
  put(entry->rank, tag);
  add(entry->waited_ns, waited_ns);
  bump(entry->waits);
}

void Recorder::bytes(std::string_view transport, std::uint64_t put_bytes, std::uint64_t got) {
  const std::uint64_t used = file_->transports_used.load(kRelaxed);
  TransportBytes* const end = file_->transports + used;
  TransportBytes* found = std::find_if(
      file_->transports, end, [&](const TransportBytes& each) { return transport == each.name; });
  if (found == end) {
    if (used == kTransports) return;
    transport.copy(found->name, sizeof found->name - 1);
  }
  put(found->put, put_bytes);
  put(found->got, got);
  if (found == end) file_->transports_used.store(used + 1, kRelease);
}

void Recorder::fail(const Status& status) {
  is_kept_ = true;
  const std::string text = status.to_string();
  if (text == error_) return;  // it is told on its way through the layers
  error_ = text;
  const std::uint64_t now = ns_of(clock_.now());
  push(EventKind::kError, now, now, static_cast<std::uint64_t>(status.code()),
       {.peer = static_cast<std::uint32_t>(status.peer().value_or(Rank()).value() + 1)});
  const SeqlockUpdate update(file_->error.sequence);
  put(file_->error.when_ns, now);
  for (std::size_t i = 0; i < kErrorWords; ++i) {
    std::uint64_t word = 0;
    // The last word keeps a zero byte.
    const std::size_t room = sizeof word - (i + 1 == kErrorWords ? 1 : 0);
    if (i * sizeof word < text.size())
      std::memcpy(&word, text.data() + i * sizeof word,
                  std::min(room, text.size() - i * sizeof word));
    put(file_->error.text[i], word);
  }
}

void Recorder::leave(const PeerTable& peers) {
  has_left_ = true;
  for (int rank = 0; rank < options_.size && peers.is_anybody_gone() && !is_kept_; ++rank)
    is_kept_ = peers.state(Rank(rank)) == PeerState::kDead;
}

void WaitRecord::go_on(TimePoint now, Rank peer) {
  if (recorder_ == nullptr) return;
  if (!is_begun_ && peer == Rank()) return;
  const TimePoint since = is_begun_ ? now : began_;
  is_begun_ = true;
  recorder_->wait_for(peer, since, now);
}

void WaitRecord::finish(TimePoint now) {
  recorder_->end_wait(now);
}

}  // namespace dunlin::flight
