#include "collectives/communicator/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "collectives/kernels/gpu/arguments.h"
#include "collectives/schedule/gpu_compute.h"
#include "runtime/gpu/cuda_driver.h"
#include "runtime/log.h"
#include "runtime/topology.h"

namespace dunlin::collective {

using transport::NotifyId;

namespace {

// Larger communicators do not try to map one another's memory.
constexpr int kMostMapped = 256;

}  // namespace

Members::Members(transport::Fabric& fabric, CommunicatorOptions options)
    : fabric_(fabric),
      options_(std::move(options)),
      windows_(fabric, options_.name, options_.members) {}

Result<std::unique_ptr<Members>> Members::prepare(transport::Fabric& fabric,
                                                  CommunicatorOptions options) {
  if (options.members.empty()) {
    for (int rank = 0; rank < fabric.size(); ++rank) options.members.emplace_back(rank);
  }
  std::unique_ptr<Members> result(new Members(fabric, std::move(options)));
  DUNLIN_TRY(result->allocate());
  return result;
}

Status Members::connect(TimePoint until) {
  DUNLIN_TRY(meet(until));
  DUNLIN_TRY(agree_on_mapping(until));
  return agree_on_tuning(until);
}

Result<Bytes> Members::look_up(std::string_view what, int member, TimePoint until) {
  const Duration left = std::max(until - fabric_.clock().now(), Duration::zero());
  return fabric_.bootstrap().lookup_from(options_.members[static_cast<std::size_t>(member)],
                                         key(what, member), left);
}

Status Members::exchange(std::string_view what, std::span<const std::byte> own,
                         std::span<std::byte> all) {
  DUNLIN_TRY(fabric_.bootstrap().publish(key(what, rank_), Bytes(own.begin(), own.end())));
  const TimePoint until = fabric_.clock().now() + fabric_.config().deadline;
  for (int member = 0; member < size(); ++member) {
    DUNLIN_ASSIGN(const Bytes bytes, look_up(what, member, until));
    if (bytes.size() != own.size()) {
      return Status(Code::kCorrupted, fmt::format("'{}' has {} bytes, not {}", key(what, member),
                                                  bytes.size(), own.size()))
          .with_peer(options_.members[static_cast<std::size_t>(member)]);
    }
    std::ranges::copy(bytes, all.subspan(static_cast<std::size_t>(member) * own.size()).begin());
  }
  return Status::ok();
}

Members::~Members() {
  if (has_cells_) board().free(cells_, kTurns * kStreams * options_.members.size());
}

Status Members::prepare_computes() {
  if (!options_.gpu) {
    for (auto& compute : computes_) compute = std::make_unique<KernelCompute>();
    return Status::ok();
  }
  DUNLIN_ASSIGN(gpu_, load_cuda_driver());
  DUNLIN_ASSIGN(const std::shared_ptr<const GpuKernels> kernels,
                GpuKernels::load(gpu_, *options_.gpu));
  for (auto& compute : computes_) {
    DUNLIN_ASSIGN(compute, GpuCompute::create(fabric_, *gpu_, kernels));
  }
  windows_.use_gpu(gpu_, *options_.gpu);
  return Status::ok();
}

Status Members::allocate() {
  const auto& members = options_.members;
  for (const Rank member : members) {
    if (member.value() < 0 || member.value() >= fabric_.size()) {
      return {Code::kOutOfRange,
              fmt::format("communicator '{}': member {} does not exist in a job of {} ranks",
                          options_.name, member.value(), fabric_.size())};
    }
    if (std::ranges::count(members, member) > 1) {
      return {Code::kInvalidArgument, fmt::format("communicator '{}': member {} is listed twice",
                                                  options_.name, member.value())};
    }
  }
  const auto place = std::ranges::find(members, fabric_.rank());
  if (place == members.end()) {
    return {Code::kInvalidArgument, fmt::format("communicator '{}': rank {} is not a member",
                                                options_.name, fabric_.rank().value())};
  }
  rank_ = static_cast<int>(place - members.begin());
  for (auto& peers : peers_) peers.resize(members.size());
  first_cells_.resize(members.size());
  DUNLIN_TRY(prepare_computes());
  DUNLIN_ASSIGN(cells_, board().allocate(kTurns * kStreams * members.size()));
  has_cells_ = true;
  DUNLIN_ASSIGN(scratch_, windows_.allocate(options_.scratch_bytes));
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(cells_))
      .number(static_cast<std::uint64_t>(options_.scratch_bytes))
      .number(static_cast<std::uint64_t>(options_.segment_bytes))
      .number(static_cast<std::uint64_t>(members.size()))
      .number(static_cast<std::int32_t>(options_.groups))
      .number(static_cast<std::uint8_t>(is_on_gpu()))
      .text(host_identity(fabric_.config().host_id));
  return fabric_.bootstrap().publish(key("offer", rank_), writer.take());
}

Status Members::meet(TimePoint until) {
  std::map<std::string, int> number_of_host;
  std::vector<int> host_of;
  for (int member = 0; member < size(); ++member) {
    const Rank peer = options_.members[static_cast<std::size_t>(member)];
    auto offer = look_up("offer", member, until);
    if (!offer) {
      return std::move(offer)
          .status()
          .with_context(fmt::format("waiting for a member of communicator '{}'", options_.name))
          .with_peer(peer);
    }
    ByteReader reader(*offer);
    first_cells_[static_cast<std::size_t>(member)] = NotifyId(reader.number<std::uint32_t>());
    const auto scratch = reader.number<std::uint64_t>();
    const auto segment = reader.number<std::uint64_t>();
    const auto members = reader.number<std::uint64_t>();
    const auto groups = reader.number<std::int32_t>();
    const bool has_gpu = reader.number<std::uint8_t>() != 0;
    const std::string host = reader.text();
    if (!reader.at_end() || scratch != options_.scratch_bytes ||
        segment != options_.segment_bytes || members != options_.members.size() ||
        groups != options_.groups || has_gpu != is_on_gpu()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("communicator '{}': the member has other options", options_.name))
          .with_peer(peer);
    }
    host_of.push_back(
        number_of_host.try_emplace(host, static_cast<int>(number_of_host.size())).first->second);
  }
  hosts_ = Grouping::of(host_of);
  grouping_ = hosts_;
  if (options_.groups > 0) {
    DUNLIN_ASSIGN(grouping_, Grouping::even(size(), options_.groups));
  }
  connections_ = Connections::among(grouping_);
  return Status::ok();
}

Status Members::agree_on_mapping(TimePoint until) {
  // One launch on a GPU takes the memory of all members.
  const int most = is_on_gpu() ? static_cast<int>(gpu::kMostInputs) : kMostMapped;
  if (size() > most) return Status::ok();
  bool has_all = true;
  for (int member = 0; member < size() && has_all; ++member) {
    if (member == rank_) continue;
    DUNLIN_TRY(windows_.import(*scratch_, member, fabric_.config().deadline));
    has_all = scratch_->mapped(member) != nullptr;
  }
  if (!has_told_mapping_) {
    ByteWriter writer;
    writer.number(static_cast<std::uint8_t>(has_all));
    DUNLIN_TRY(fabric_.bootstrap().publish(key("mapped", rank_), writer.take()));
    has_told_mapping_ = true;
  }
  // One member that has not mapped all others decides.
  for (int member = 0; member < size() && has_all; ++member) {
    DUNLIN_ASSIGN(const Bytes answer, look_up("mapped", member, until));
    ByteReader reader(answer);
    has_all = reader.number<std::uint8_t>() != 0;
  }
  is_all_mapped_ = has_all;
  return Status::ok();
}

Status Members::agree_on_tuning(TimePoint until) {
  if (size() == 1) return Status::ok();
  if (rank_ == 0) {
    tuning_.shape = tuning_shape();
    auto tunings = read_tunings(fabric_.config().tuning_file);
    if (!tunings) {
      DUNLIN_WARN("{}; continuing without a tuning", tunings.status().message());
    } else {
      for (Tuning& tuning : *tunings) {
        if (tuning.shape.key() == tuning_.shape.key()) tuning_ = std::move(tuning);
      }
    }
    ByteWriter writer;
    writer.text(to_text(tuning_));
    return fabric_.bootstrap().publish(key("tuning", 0), writer.take());
  }
  DUNLIN_ASSIGN(const Bytes text, look_up("tuning", 0, until));
  ByteReader reader(text);
  DUNLIN_ASSIGN(tuning_, parse_tuning(reader.text()));
  return Status::ok();
}

TuningShape Members::tuning_shape() const {
  TuningShape shape;
  // Tunings of host memory and of GPU memory are different ones.
  shape.processor = gpu_ == nullptr ? host_topology().cpu_model
                                    : gpu_->devices()[static_cast<std::size_t>(*options_.gpu)].name;
  shape.size = size();
  shape.hosts = hosts_.groups();
  shape.is_all_mapped = is_all_mapped_;
  // The transport to the farthest member: the first one on another host, or the next on this host.
  const int other = hosts_.groups() > 1 ? hosts_.leader(hosts_.group_of(rank_) == 0 ? 1 : 0)
                                        : (rank_ + 1) % size();
  const Rank peer = options_.members[static_cast<std::size_t>(other)];
  shape.transport = other == rank_ || !fabric_.link(peer) ? "" : fabric_.transport_of(peer);
  return shape;
}

Connections Members::connections() const {
  Connections connections = connections_;
  connections.is_all_mapped = is_all_mapped_;
  connections.is_one_gpu = is_on_one_gpu();
  // A host with a NIC for each rank is not told from one that has a single NIC.
  connections.shares_fast_nic = connections.hosts.rows > 0 && tuning_.shape.transport == "verbs";
  return connections;
}

Shape Members::shape_for(std::size_t element) const {
  Shape shape;
  shape.scratch = scratch_per_turn() / element;
  shape.segment = std::max<std::size_t>(1, options_.segment_bytes / element);
  shape.groups = &grouping_;
  shape.hosts = connections_.hosts;
  shape.is_one_gpu = is_on_one_gpu();
  return shape;
}

bool Members::suits(const Algorithm& algorithm) const {
  if (algorithm.needs_mapped_peers) {
    if (!is_all_mapped_) return false;
    // It needs members that all pass memory at the same place, which they need not in a reduce.
    if (algorithm.collective == Collective::kReduce) return false;
  }
  // Groups only help if there are several and at least one has several members.
  return !algorithm.needs_groups || (grouping_.groups() > 1 && grouping_.groups() < size());
}

Result<ExecutorPeer*> Members::peer(std::uint64_t turn, int member) {
  ExecutorPeer& peer = peers_[turn][static_cast<std::size_t>(member)];
  if (peer.rank != Rank()) return &peer;
  const Rank rank = options_.members[static_cast<std::size_t>(member)];
  DUNLIN_ASSIGN(transport::Link* const link, fabric_.link(rank));
  DUNLIN_TRY(windows_.import(*scratch_, member, fabric_.config().deadline));
  for (const Stream stream : {Stream::kData, Stream::kControl}) {
    ExecutorPeer::Way& way = peer.ways[static_cast<std::size_t>(stream)];
    way.lane = stream == Stream::kData ? &link->data() : &link->control();
    way.ours = cell(cells_, turn, stream, member);
    way.theirs = cell(first_cells_[static_cast<std::size_t>(member)], turn, stream, rank_);
  }
  peer.rank = rank;
  return &peer;
}

int Members::member(Rank rank) const {
  return static_cast<int>(std::ranges::find(options_.members, rank) - options_.members.begin());
}

std::string Members::key(std::string_view what, int member) const {
  return fmt::format("communicator/{}/{}/{}", options_.name, what,
                     options_.members[static_cast<std::size_t>(member)].value());
}

NotifyId Members::cell(NotifyId first, std::uint64_t turn, Stream stream, int writer) const {
  const std::uint64_t index =
      (turn * kStreams + static_cast<std::uint64_t>(stream)) * static_cast<std::uint64_t>(size()) +
      static_cast<std::uint64_t>(writer);
  return transport::cell_at(first, static_cast<std::uint32_t>(index));
}

}  // namespace dunlin::collective
