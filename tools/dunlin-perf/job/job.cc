#include "tools/dunlin-perf/job/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "runtime/log.h"
#include "runtime/topology.h"

namespace dunlin::perf {
namespace {

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    parts.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

const char* name_of(WaitMode mode) {
  switch (mode) {
    case WaitMode::kAuto:
      return "auto";
    case WaitMode::kSpin:
      return "spin";
    case WaitMode::kYield:
      return "yield";
    case WaitMode::kEvent:
      return "event";
  }
  return "unknown";
}

}  // namespace

Result<std::unique_ptr<Job>> Job::open(const Options& options, Config config,
                                       std::unique_ptr<Bootstrap> bootstrap) {
  std::unique_ptr<Job> job(new Job());
  job->config_ = std::move(config);
  job->bootstrap_ = std::move(bootstrap);
  DUNLIN_TRY(job->start(options));
  return job;
}

Status Job::start(const Options& options) {
  if (!options.transport.empty()) config_.transports = split(options.transport);
  if (options.queue_pairs != 0) config_.verbs_queue_pairs = options.queue_pairs;
  configure_log(config_.log_level, rank());
  memory_ = options.memory.kind;
  if (options.memory.kind == MemoryChoice::Kind::kCuda) {
    DUNLIN_ASSIGN(gpu_, MeasuredGpu::open(options.memory, bootstrap_->job().local_rank, clock_,
                                          config_.deadline));
  }
  if (options.binds) DUNLIN_TRY(bind());
  DUNLIN_ASSIGN(recorder_, flight::Recorder::open(config_, *bootstrap_, clock_));
  DUNLIN_ASSIGN(fabric_, transport::Fabric::create(*bootstrap_, config_, clock_));
  fabric_->record_in(recorder_.get());
  const int local_size = bootstrap_->job().local_size;
  poll_ = options.poll;
  spins_ = options.poll == Poll::kSpin ||
           (options.poll == Poll::kAuto && local_size <= cores_shared_by(local_size));
  return gpu_ == nullptr ? Status::ok() : gather_gpus();
}

Status Job::gather_gpus() {
  using Json = nlohmann::ordered_json;
  const GpuDevice& own = gpu_->device();
  const Json told{{"number", own.number}, {"name", own.name}, {"pci", own.pci_bus_id}};
  // A name need not be UTF-8.
  DUNLIN_ASSIGN(const auto texts,
                gather(ranks(), told.dump(-1, ' ', false, Json::error_handler_t::replace)));
  for (const std::string& text : texts) {
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return {Code::kCorrupted, "a rank describes its GPU in a wrong way"};
    gpus_.push_back(
        {static_cast<int>(gpus_.size()), json.at("number"), json.at("name"), json.at("pci")});
  }
  return Status::ok();
}

Result<std::unique_ptr<transport::LocalRegion>> Job::allocate(std::size_t size) {
  if (memory_ == MemoryChoice::Kind::kWrapped) {
    std::vector<std::byte>& own = wrapped_.emplace_back(size);
    DUNLIN_ASSIGN(auto memory, MemoryRegion::wrap(own.data(), own.size()));
    return fabric_->register_memory(std::move(memory));
  }
  if (gpu_ == nullptr) return fabric_->allocate(size);
  return fabric_->allocate_on_gpu(gpu_->driver(), gpu_->device().number, size);
}

Status Job::bind() {
  // A launcher may have bound the rank already: then this process has fewer cores.
  if (host_topology().cores < bootstrap_->job().local_size) return Status::ok();
  const int first = bootstrap_->job().local_rank;
  const std::vector<int>& cores = host_topology().core_cpus;
  // The launcher has taken the cores that it has bound its ranks to.
  if (host_topology().cores < host_topology().host_cores) return bind_thread_to_core(first);
  claims_.emplace(Environment::of_process());
  for (std::size_t i = 0; i < cores.size(); ++i) {
    const std::size_t core = (static_cast<std::size_t>(first) + i) % cores.size();
    if (claims_->take(cores[core])) return bind_thread_to_core(static_cast<int>(core));
  }
  DUNLIN_INFO("other jobs have taken all cores: this rank is not bound");
  return Status::ok();
}

std::string Job::wait_policy() const {
  return spins_ ? "spin" : fmt::format("wait:{}", name_of(config_.wait));
}

Status Job::check(Rank peer, const char* what, Duration timeout, TimePoint& began) const {
  const TimePoint now = clock_.now();
  if (began == TimePoint{}) began = now;
  if (Status status = bootstrap_->peers().check(peer); !status.is_ok()) {
    return std::move(status).with_context(fmt::format("waiting for {}", what));
  }
  if (now - began < timeout) return Status::ok();
  return Status(Code::kDeadlineExceeded,
                fmt::format("waited {:.1f} s for {}", to_seconds(now - began), what))
      .with_peer(peer);
}

Status Job::finish() {
  DUNLIN_TRY(bootstrap_->barrier("perf/finish", config_.deadline));
  if (recorder_) recorder_->leave(bootstrap_->peers());
  return Status::ok();
}

Result<std::uint64_t> Job::tell(std::uint64_t value) {
  const std::string key = fmt::format("perf/tell/{}", tellings_++);
  if (is_root()) {
    ByteWriter writer;
    DUNLIN_TRY(bootstrap_->publish(key, writer.number(value).take()));
    return value;
  }
  DUNLIN_ASSIGN(const Bytes told, bootstrap_->lookup_from(Rank(0), key, config_.deadline));
  return ByteReader(told).number<std::uint64_t>();
}

Result<std::uint64_t> Job::next_chunk(const Plan& plan, Pacer& pacer) {
  const TimePoint now = clock_.now();
  if (plan.duration == Duration::zero()) return pacer.next(now);
  return tell(is_root() ? pacer.next(now) : 0);
}

std::vector<Rank> Job::ranks(int step) const {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < size(); rank += step) ranks.emplace_back(rank);
  return ranks;
}

Result<std::vector<std::string>> Job::gather(const std::vector<Rank>& ranks,
                                             const std::string& value) {
  const auto key = [number = gathers_++](Rank from) {
    return fmt::format("perf/gather/{}/{}", number, from.value());
  };
  const auto mine = std::as_bytes(std::span(value));
  if (std::find(ranks.begin(), ranks.end(), rank()) != ranks.end()) {
    DUNLIN_TRY(bootstrap_->publish(key(rank()), mine));
  }
  std::vector<std::string> values;
  if (!is_root()) return values;
  for (const Rank from : ranks) {
    DUNLIN_ASSIGN(const Bytes found, bootstrap_->lookup_from(from, key(from), config_.deadline));
    values.emplace_back(reinterpret_cast<const char*>(found.data()), found.size());
  }
  return values;
}

}  // namespace dunlin::perf
