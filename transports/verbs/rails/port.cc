#include "transports/verbs/rails/port.h"

#include <fmt/format.h>

#include <cerrno>
#include <iterator>
#include <utility>

#include "runtime/log.h"
#include "transports/verbs/device/preflight.h"

namespace dunlin::transport::verbs {
namespace {

// A completion queue is made for the connections to this many peers.
constexpr int kFirstPeers = 4;
// The most completions that a queue pair can have outstanding, beside those of the queue's depth.
constexpr std::int64_t kExtraCompletions = 8;

// Completions that a queue pair of this size can have outstanding.
int completions_of(const ibv_qp_cap& room) {
  return static_cast<int>(room.max_send_wr + room.max_recv_wr);
}

}  // namespace

std::optional<AtomicScope> atomics_of(const ibv_device_attr& limits) {
  if (limits.atomic_cap == IBV_ATOMIC_HCA) return AtomicScope::kTransport;
  if (limits.atomic_cap == IBV_ATOMIC_GLOB) return AtomicScope::kSystem;
  return std::nullopt;
}

Status Port::open(const TransportContext& context, const DeviceAddress& chosen, std::size_t index,
                  const std::uint32_t (&queue_pairs)[kLaneKinds], Connector::OnRequest on_request) {
  index_ = index;
  name_ = fmt::format("{} port {}", chosen.device, chosen.port);
  DUNLIN_TRY(open_device(context, chosen, std::move(on_request)));
  if (const int error = ibv_query_device(device_, &limits_); error != 0)
    return Status::from_errno("ibv_query_device", error);
  reads_ = static_cast<std::uint8_t>(
      std::clamp(std::min(limits_.max_qp_rd_atom, limits_.max_qp_init_rd_atom), 1, int{kReads}));
  DUNLIN_ASSIGN(domain_, ProtectionDomain::create(device_, atomics_of(limits_).has_value(),
                                                  context.config.verbs_relaxed_order));
  const auto depth = static_cast<std::uint32_t>(context.config.verbs_queue_depth);
  const bool warns = context.local_rank == 0 && index == 0;
  DUNLIN_TRY(check_locked_memory(*domain_, depth, warns));
  DUNLIN_ASSIGN(channel_, CompletionChannel::create(device_));
  const std::int64_t most_pairs = context.config.verbs_max_connections;
  for (const LaneKind kind : kBothLanes) {
    const std::int64_t pairs = std::int64_t{2} * queue_pairs[index_of(kind)];  // of a peer
    if (pairs == 0) continue;
    const auto room = [&](std::int64_t count) {
      const std::int64_t completions = std::min(count, most_pairs) * (depth + kExtraCompletions);
      return static_cast<int>(std::min<std::int64_t>(completions, limits_.max_cqe));
    };
    DUNLIN_ASSIGN(completions_[index_of(kind)],
                  CompletionQueue::create(device_, *channel_,
                                          room(pairs * std::min(kFirstPeers, context.peers.size())),
                                          room(pairs * context.peers.size())));
  }
  local_.number = static_cast<std::uint8_t>(chosen.port);
  local_.gid_index = static_cast<std::uint8_t>(chosen.gid_index);
  local_.partition = context.config.verbs_pkey;
  DUNLIN_TRY(local_.read(device_));
  DUNLIN_DEBUG("verbs: {} GID index {} ({}), connections through {}", name_, chosen.gid_index,
               chosen.ip, cm_ ? "librdmacm" : "the bootstrap");
  return Status::ok();
}

Status Port::open_device(const TransportContext& context, const DeviceAddress& chosen,
                         Connector::OnRequest on_request) {
  prefers_manager_ = context.config.verbs_connect == VerbsConnect::kManager;
  const bool has_partition = !context.config.verbs_pkey.empty();
  if (prefers_manager_ && has_partition) {
    return {Code::kInvalidArgument,
            "DUNLIN_VERBS_PKEY does not work with DUNLIN_VERBS_CONNECT=manager: the connection "
            "manager uses the partition of the IP interface"};
  }
  if (!chosen.ip.empty() && !has_partition &&
      context.config.verbs_connect != VerbsConnect::kBootstrap)
    DUNLIN_TRY(start_manager(context, chosen.ip, std::move(on_request)));
  if (!cm_) {
    DUNLIN_ASSIGN(own_device_, Device::open(chosen.device));
  }
  device_ = cm_ ? cm_->device() : own_device_->handle();
  return set_nonblocking(device_->async_fd);
}

// If it does not start, connections are made through the bootstrap instead.
Status Port::start_manager(const TransportContext& context, const std::string& ip,
                           Connector::OnRequest on_request) {
  // All peers may connect at once, and a request that finds the queue full waits for seconds.
  const auto queue_pairs = static_cast<int>(context.config.verbs_queue_pairs);
  const int backlog = (static_cast<int>(kLaneKinds) + queue_pairs) * context.peers.size();
  auto made =
      CmConnector::create(ip, index_, backlog, Delivery(context.config), std::move(on_request));
  if (!made && context.config.verbs_connect == VerbsConnect::kManager)
    return std::move(made).status();
  if (!made) {
    DUNLIN_INFO("verbs: no connection manager: {}", made.status().message());
    return Status::ok();
  }
  cm_ = std::move(made).value();
  ip_ = ip;
  return Status::ok();
}

void Port::refresh() {
  if (const Status status = local_.read(device_); !status.is_ok())
    DUNLIN_DEBUG("verbs: {} keeps its addresses: {}", name_, status.message());
}

PortAddress Port::address() const {
  return {ip_, cm_ ? cm_->ip_port() : std::uint16_t{0}, local_.is_infiniband, local_.subnet(),
          prefers_manager_};
}

Status Port::make_queue_pair(Session& session, LaneKind kind, ibv_qp_cap room, Endpoint& endpoint) {
  CompletionQueue& completions = *completions_[index_of(kind)];
  DUNLIN_TRY(completions.reserve(completions_of(room)));
  ibv_qp_init_attr attributes{};
  attributes.send_cq = completions.handle();
  attributes.recv_cq = completions.handle();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = room;
  const bool wants_inline = room.max_inline_data != 0;
  if (wants_inline) attributes.cap.max_inline_data = kInlineSizes[inline_size_];
  Status status = session.create_queue_pair(*domain_, attributes);
  // The device may grant less, and says so by an error.
  std::size_t size = inline_size_;
  while (!status.is_ok() && wants_inline && ++size < std::size(kInlineSizes)) {
    attributes.cap = room;
    attributes.cap.max_inline_data = kInlineSizes[size];
    status = session.create_queue_pair(*domain_, attributes);
  }
  if (status.is_ok()) {
    if (wants_inline && size != inline_size_) {
      DUNLIN_DEBUG("verbs: {} sends {} bytes inline, not {}", name_, kInlineSizes[size],
                   kInlineSizes[inline_size_]);
      inline_size_ = size;
    }
    endpoints_[session.queue_pair()->qp_num] = &endpoint;
    last_ = {};
  } else {
    completions.release(completions_of(room));
  }
  return status;
}

void Port::detach(Session& session, LaneKind kind, const ibv_qp_cap& room) {
  if (session.queue_pair() == nullptr) return;
  endpoints_.erase(session.queue_pair()->qp_num);
  last_ = {};
  completions_[index_of(kind)]->release(completions_of(room));
}

bool Port::arm() {
  for (const auto& queue : completions_) {
    if (queue && !queue->arm()) return false;
  }
  return true;
}

void Port::append_wait_fds(std::vector<int>& fds) const {
  fds.push_back(channel_->handle()->fd);
  fds.push_back(device_->async_fd);
  if (cm_) fds.push_back(cm_->fd());
}

void Port::close() {
  cm_.reset();
  if (channel_) channel_->drain();
}

}  // namespace dunlin::transport::verbs
