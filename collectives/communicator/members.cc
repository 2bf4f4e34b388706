#include "collectives/communicator/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "collectives/communicator/mismatch.h"
#include "collectives/communicator/offers.h"
#include "collectives/kernels/gpu/arguments.h"
#include "collectives/schedule/gpu_compute.h"
#include "runtime/fnv.h"
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
  if (options.members.empty()) options.members = fabric.bootstrap().membership().members;
  std::unique_ptr<Members> result(new Members(fabric, std::move(options)));
  DUNLIN_TRY(result->allocate());
  return result;
}

Status Members::connect(TimePoint until) {
  DUNLIN_TRY(meet(until));
  DUNLIN_TRY(agree_on_mapping(until));
  return agree_on_tuning(until);
}

Result<Bytes> Members::gather(std::string_view what, std::span<const std::byte> own,
                              TimePoint until) {
  return fabric_.bootstrap().gather(key(what), group_, own, fabric_.remaining(until));
}

Status Members::exchange(std::string_view what, std::span<const std::byte> own,
                         std::span<std::byte> all) {
  auto gathered = gather(what, own, fabric_.clock().now() + fabric_.config().deadline);
  fabric_.bootstrap().release(key(what), options_.members.size());
  DUNLIN_ASSIGN(const Bytes bytes, std::move(gathered));
  if (bytes.size() != all.size()) {
    return {Code::kCorrupted,
            fmt::format("'{}' has {} bytes, not {}", key(what), bytes.size(), all.size())};
  }
  std::ranges::copy(bytes, all.begin());
  return Status::ok();
}

Members::~Members() {
  if (has_cells_) board().free(cells_, kTurns * kStreams * options_.members.size());
  if (scratch_ == nullptr) return;
  // Each member releases every topic, also one that it never used: a topic is forgotten when all
  // members have released it.
  for (const char* const what : {"offer", "mapped", "tuning"})
    fabric_.bootstrap().release(key(what), options_.members.size());
  fabric_.bootstrap().release(MismatchNews::topic(options_.name), options_.members.size());
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

Status Members::check_members() {
  const auto& members = options_.members;
  std::vector<bool> is_member(static_cast<std::size_t>(fabric_.size()));
  bool is_whole_job = members.size() == is_member.size();
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Rank member = members[i];
    if (member.value() < 0 || member.value() >= fabric_.size()) {
      return {Code::kOutOfRange,
              fmt::format("communicator '{}': member {} does not exist in a job of {} ranks",
                          options_.name, member.value(), fabric_.size())};
    }
    if (is_member[member.index()]) {
      return {Code::kInvalidArgument, fmt::format("communicator '{}': member {} is listed twice",
                                                  options_.name, member.value())};
    }
    is_member[member.index()] = true;
    if (member == fabric_.rank()) rank_ = static_cast<int>(i);
    if (member.index() != i) is_whole_job = false;
  }
  if (rank_ < 0) {
    return {Code::kInvalidArgument, fmt::format("communicator '{}': rank {} is not a member",
                                                options_.name, fabric_.rank().value())};
  }
  if (!is_whole_job) group_ = members;
  return Status::ok();
}

Status Members::allocate() {
  DUNLIN_TRY(check_members());
  first_cells_.resize(options_.members.size());
  DUNLIN_TRY(prepare_computes());
  DUNLIN_ASSIGN(cells_, board().allocate(kTurns * kStreams * options_.members.size()));
  has_cells_ = true;
  DUNLIN_ASSIGN(scratch_, windows_.allocate(options_.scratch_bytes, Pages::kOnUse));
  return fabric_.bootstrap().contribute(key("offer"), group_, offer());
}

std::uint32_t Members::options_hash() const {
  Fnv options;
  options.add(options_.scratch_bytes).add(options_.segment_bytes).add(options_.members.size());
  options.add(static_cast<std::uint64_t>(options_.groups)).add(is_on_gpu() ? 1 : 0);
  return static_cast<std::uint32_t>(options.value() >> 32);
}

Bytes Members::offer() const {
  return MemberOffer{cells_, options_hash(), hash_of(host_identity(fabric_.config().host_id))}
      .encode();
}

Status Members::meet(TimePoint until) {
  auto gathered = gather("offer", offer(), until);
  if (!gathered) {
    return std::move(gathered).status().with_context(
        fmt::format("waiting for the members of communicator '{}'", options_.name));
  }
  DUNLIN_ASSIGN(const auto offers, MemberOffer::decode_all(*gathered, options_.members.size()));
  const std::uint32_t own_options = options_hash();
  std::map<std::uint64_t, int> number_of_host;
  std::vector<int> host_of;
  for (std::size_t member = 0; member < offers.size(); ++member) {
    const MemberOffer& theirs = offers[member];
    first_cells_[member] = theirs.first_cell;
    if (theirs.options != own_options) {
      return Status(Code::kInvalidArgument,
                    fmt::format("communicator '{}': the member has other options", options_.name))
          .with_peer(options_.members[member]);
    }
    const auto number = static_cast<int>(number_of_host.size());
    host_of.push_back(number_of_host.try_emplace(theirs.host, number).first->second);
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
  if (hosts_.groups() == 1) {
    std::vector<int> others;
    for (int member = 0; member < size(); ++member) {
      if (member != rank_) others.push_back(member);
    }
    DUNLIN_TRY(windows_.fetch(*scratch_, others, fabric_.remaining(until)));
  }
  for (int member = 0; member < size() && has_all; ++member) {
    if (member == rank_) continue;
    DUNLIN_TRY(windows_.import(*scratch_, member, fabric_.remaining(until)));
    has_all = scratch_->mapped(member) != nullptr;
  }
  // One member that has not mapped all others decides, without waiting for them.
  const std::array own{static_cast<std::byte>(has_all)};
  if (!has_all) return fabric_.bootstrap().contribute(key("mapped"), group_, own);
  DUNLIN_ASSIGN(const Bytes answers, gather("mapped", own, until));
  DUNLIN_ASSIGN(is_all_mapped_, decode_mapped(answers, options_.members.size()));
  return Status::ok();
}

Status Members::agree_on_tuning(TimePoint until) {
  if (rank_ == 0) {
    tuning_.shape = find_shape();
    if (size() == 1) return Status::ok();
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
    return fabric_.bootstrap().publish(key("tuning"), writer.take());
  }
  DUNLIN_ASSIGN(const Bytes text,
                fabric_.bootstrap().lookup_from(options_.members.front(), key("tuning"),
                                                fabric_.remaining(until)));
  ByteReader reader(text);
  auto tuning = parse_tuning(reader.text());
  if (tuning && !reader.at_end()) tuning = Status(Code::kCorrupted, "bytes follow the tuning");
  if (!tuning) return std::move(tuning).status().with_peer(options_.members.front());
  tuning_ = *std::move(tuning);
  return Status::ok();
}

TuningShape Members::find_shape() const {
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
  connections.has_costly_messages = tuning_.shape.transport == "tcp";
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
  ExecutorPeer& peer = peers_[member][turn];
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
  if (group_.empty()) return rank.value();
  return static_cast<int>(std::ranges::find(options_.members, rank) - options_.members.begin());
}

std::string Members::key(std::string_view what) const {
  return fmt::format("communicator/{}/{}", options_.name, what);
}

int Members::next_writer(int from) const {
  constexpr std::size_t kCells = kTurns * kStreams;
  const auto first = static_cast<std::size_t>(cells_);
  const std::size_t begin = first + static_cast<std::size_t>(from) * kCells;
  const std::size_t used = fabric_.board().next_used(begin);
  return static_cast<int>(std::min((used - first) / kCells, static_cast<std::size_t>(size())));
}

// The cells of one writer are next to each other, so that a member's board has pages for the peers
// that it speaks to.
NotifyId Members::cell(NotifyId first, std::uint64_t turn, Stream stream, int writer) {
  const std::uint64_t index = (static_cast<std::uint64_t>(writer) * kTurns + turn) * kStreams +
                              static_cast<std::uint64_t>(stream);
  return transport::cell_at(first, static_cast<std::uint32_t>(index));
}

}  // namespace dunlin::collective
