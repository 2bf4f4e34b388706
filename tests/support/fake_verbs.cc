#include "tests/support/fake_verbs.h"

#include <arpa/inet.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/support/fake_verbs_state.h"

namespace dunlin::testing {
namespace fake_verbs {

State& state() {
  static State* const made = new State;
  return *made;
}

namespace {

// Memory -----------------------------------------------------------------------------------------

std::optional<FakeVerbs::GpuPlace> gpu_place(std::uint64_t address, std::size_t size) {
  const auto& find = state().options.gpu_memory;
  return find ? find(address, size) : std::nullopt;
}

void write_memory(std::uint64_t address, const std::byte* bytes, std::size_t size) {
  if (const auto place = gpu_place(address, size)) {
    state().held[place->gpu].push_back({place->bytes, {bytes, bytes + size}});
    return;
  }
  std::memcpy(reinterpret_cast<void*>(address), bytes, size);
}

void read_memory(std::uint64_t address, std::byte* bytes, std::size_t size) {
  const auto place = gpu_place(address, size);
  if (place) {
    for (const HeldWrite& write : std::exchange(state().held[place->gpu], {}))
      std::memcpy(write.to, write.bytes.data(), write.bytes.size());
  }
  std::memcpy(bytes, place ? place->bytes : reinterpret_cast<const std::byte*>(address), size);
}

bool is_allowed(std::uint32_t key, std::uint64_t address, std::size_t size, int access) {
  const auto found = state().regions.find(key);
  if (found == state().regions.end()) return false;
  const Region& region = *found->second;
  const auto begin = reinterpret_cast<std::uint64_t>(region.addr);
  return (region.access & access) == access && address >= begin &&
         address - begin <= region.length && size <= region.length - (address - begin);
}

// Completions ------------------------------------------------------------------------------------

void complete(ibv_cq* where, const Pair& pair, std::uint64_t number, ibv_wc_status status,
              const ibv_send_wr* arrived = nullptr, std::uint32_t bytes = 0) {
  auto& queue = static_cast<Queue&>(*where);
  ibv_wc completion{};
  completion.wr_id = number;
  completion.status = status;
  completion.qp_num = pair.qp_num;
  completion.byte_len = bytes;
  if (arrived != nullptr) {
    completion.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    completion.imm_data = arrived->imm_data;
  }
  queue.completions.push_back(completion);
  if (queue.completions.size() > static_cast<std::size_t>(queue.cqe)) state().has_overrun = true;
  if (!std::exchange(queue.is_armed, false) || queue.channel == nullptr) return;
  auto& channel = static_cast<Channel&>(*queue.channel);
  channel.announced.push_back(where);
  (void)eventfd_write(channel.fd, 1);
}

}  // namespace

void break_pair(Pair& pair) {
  pair.state = IBV_QPS_ERR;
  for (const std::uint64_t number : std::exchange(pair.receives, {}))
    complete(pair.recv_cq, pair, number, IBV_WC_WR_FLUSH_ERR);
}

namespace {

// Work requests ----------------------------------------------------------------------------------

ibv_wc_status carry_out(Pair& from, const ibv_send_wr& request) {
  const auto peer = state().pairs.find(from.peer);
  if (from.is_broken || peer == state().pairs.end() || peer->second->is_broken ||
      (peer->second->state != IBV_QPS_RTR && peer->second->state != IBV_QPS_RTS))
    return IBV_WC_RETRY_EXC_ERR;
  Pair& to = *peer->second;
  const bool has_bytes = request.num_sge != 0;
  const ibv_sge piece = has_bytes ? *request.sg_list : ibv_sge{};
  const bool is_atomic =
      request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  const bool is_read = request.opcode == IBV_WR_RDMA_READ;
  const bool is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
  if (is_inline && piece.length > from.cap.max_inline_data) return IBV_WC_LOC_LEN_ERR;
  if (has_bytes && !is_inline &&
      !is_allowed(piece.lkey, piece.addr, piece.length,
                  is_read || is_atomic ? IBV_ACCESS_LOCAL_WRITE : 0))
    return IBV_WC_LOC_PROT_ERR;
  const std::uint64_t remote =
      is_atomic ? request.wr.atomic.remote_addr : request.wr.rdma.remote_addr;
  const std::uint32_t key = is_atomic ? request.wr.atomic.rkey : request.wr.rdma.rkey;
  const int access = is_atomic ? IBV_ACCESS_REMOTE_ATOMIC
                     : is_read ? IBV_ACCESS_REMOTE_READ
                               : IBV_ACCESS_REMOTE_WRITE;
  if (has_bytes && !is_allowed(key, remote, piece.length, access)) return IBV_WC_REM_ACCESS_ERR;
  std::vector<std::byte> bytes(piece.length);
  if (is_read) {
    read_memory(remote, bytes.data(), bytes.size());
    write_memory(piece.addr, bytes.data(), bytes.size());
  } else if (is_atomic) {
    std::uint64_t word = 0;
    read_memory(remote, reinterpret_cast<std::byte*>(&word), sizeof word);
    write_memory(piece.addr, reinterpret_cast<const std::byte*>(&word), sizeof word);
    const auto& atomic = request.wr.atomic;
    if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      word += atomic.compare_add;
    } else if (word == atomic.compare_add) {
      word = atomic.swap;
    }
    write_memory(remote, reinterpret_cast<const std::byte*>(&word), sizeof word);
  } else {
    if (has_bytes) read_memory(piece.addr, bytes.data(), bytes.size());
    if (has_bytes) write_memory(remote, bytes.data(), bytes.size());
    if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
      if (to.receives.empty()) return IBV_WC_RNR_RETRY_EXC_ERR;
      const std::uint64_t number = to.receives.front();
      to.receives.pop_front();
      complete(to.recv_cq, to, number, IBV_WC_SUCCESS, &request, piece.length);
    }
  }
  return IBV_WC_SUCCESS;
}

}  // namespace

int post_send(ibv_qp* queue_pair, ibv_send_wr* request, ibv_send_wr** bad) {
  const Guard guard(state().mutex);
  auto& pair = static_cast<Pair&>(*queue_pair);
  for (; request != nullptr; request = request->next) {
    if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) {
      *bad = request;
      return EINVAL;
    }
    const auto& hangs_at = state().options.hangs_at;
    if (hangs_at && pair.state == IBV_QPS_RTS && !pair.has_hung && hangs_at(*request)) {
      pair.has_hung = true;
      ++state().hung_pairs;
    }
    if (pair.has_hung) continue;
    const bool is_flushed = pair.state == IBV_QPS_ERR;
    const ibv_wc_status status = is_flushed ? IBV_WC_WR_FLUSH_ERR : carry_out(pair, *request);
    const bool is_signaled = (request->send_flags & IBV_SEND_SIGNALED) != 0;
    if (is_signaled || status != IBV_WC_SUCCESS)
      complete(pair.send_cq, pair, request->wr_id, status);
    if (status != IBV_WC_SUCCESS && !is_flushed) break_pair(pair);
  }
  return 0;
}

int post_receive(ibv_qp* queue_pair, ibv_recv_wr* request, ibv_recv_wr**) {
  const Guard guard(state().mutex);
  auto& pair = static_cast<Pair&>(*queue_pair);
  for (; request != nullptr; request = request->next) {
    pair.receives.push_back(request->wr_id);
    if (pair.state == IBV_QPS_ERR) break_pair(pair);
  }
  return 0;
}

int poll_queue(ibv_cq* which, int count, ibv_wc* completions) {
  const Guard guard(state().mutex);
  auto& queue = static_cast<Queue&>(*which);
  int taken = 0;
  for (; taken < count && !queue.completions.empty(); ++taken) {
    completions[taken] = queue.completions.front();
    queue.completions.pop_front();
  }
  return taken;
}

int arm_queue(ibv_cq* which, int) {
  const Guard guard(state().mutex);
  static_cast<Queue&>(*which).is_armed = true;
  return 0;
}

// The device and its port ------------------------------------------------------------------------

int query_port(ibv_context*, std::uint8_t, ibv_port_attr* found, std::size_t size) {
  const Guard guard(state().mutex);
  const FakeVerbs::Options& options = state().options;
  ibv_port_attr attributes{};
  attributes.state = IBV_PORT_ACTIVE;
  attributes.max_mtu = attributes.active_mtu = IBV_MTU_4096;
  attributes.gid_tbl_len = static_cast<int>(options.gids.size());
  attributes.pkey_tbl_len = static_cast<std::uint16_t>(options.pkeys.size());
  attributes.max_msg_sz = 1U << 31;
  attributes.lid = options.lid;
  attributes.link_layer =
      options.is_infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  attributes.flags = options.port_flags;
  std::memcpy(found, &attributes, std::min(size, sizeof attributes));
  return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input*,
                    ibv_device_attr_ex* found, std::size_t size) {
  ibv_device_attr_ex attributes{};
  (void)ibv_query_device(context, &attributes.orig_attr);
  const Guard guard(state().mutex);
  if (state().options.paging != 0) attributes.odp_caps.general_caps = IBV_ODP_SUPPORT;
  attributes.odp_caps.per_transport_caps.rc_odp_caps = state().options.paging;
  std::memcpy(found, &attributes, std::min(size, sizeof attributes));
  return 0;
}

ibv_mr* register_memory(ibv_pd* domain, void* address, std::size_t size, unsigned access) {
  const Guard guard(state().mutex);
  State& device = state();
  if (size > device.options.most_locked && (access & IBV_ACCESS_ON_DEMAND) == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* const region = new Region;
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = size;
  region->access = static_cast<int>(access);
  region->lkey = region->rkey = ++device.last_key;
  device.regions[region->rkey] = region;
  device.registrations.push_back(
      {reinterpret_cast<std::uint64_t>(address), size, static_cast<int>(access)});
  return region;
}

}  // namespace fake_verbs

using namespace fake_verbs;

FakeVerbs& FakeVerbs::instance() {
  static FakeVerbs made;
  return made;
}

void FakeVerbs::reset(Options options) {
  const Guard guard(state().mutex);
  State& device = state();
  if (options.gids.empty()) options.gids.push_back(gid("fe80::1", IBV_GID_TYPE_IB));
  device.options = std::move(options);
  device.connections.clear();
  device.inline_sizes.clear();
  device.registrations.clear();
  device.held.clear();
  device.most_pairs = 0;
  device.queue_sizes.clear();
  device.has_overrun = false;
  device.hung_pairs = 0;
  device.fork_calls = 0;
}

void FakeVerbs::change(const std::function<void(Options&)>& change) {
  const Guard guard(state().mutex);
  change(state().options);
}

void FakeVerbs::break_connections() {
  const Guard guard(state().mutex);
  for (auto& [number, pair] : state().pairs) pair->is_broken = true;
}

void FakeVerbs::forget(std::uint64_t address) {
  const Guard guard(state().mutex);
  std::erase_if(state().regions, [&](const auto& entry) {
    return reinterpret_cast<std::uint64_t>(entry.second->addr) == address;
  });
}

std::vector<FakeVerbs::Connection> FakeVerbs::connections() const {
  const Guard guard(state().mutex);
  return state().connections;
}

std::vector<std::uint32_t> FakeVerbs::inline_sizes() const {
  const Guard guard(state().mutex);
  return state().inline_sizes;
}

std::vector<FakeVerbs::Registration> FakeVerbs::registrations() const {
  const Guard guard(state().mutex);
  return state().registrations;
}

bool FakeVerbs::is_registered(std::uint64_t address) const {
  const Guard guard(state().mutex);
  return std::ranges::any_of(state().regions, [&](const auto& entry) {
    return reinterpret_cast<std::uint64_t>(entry.second->addr) == address;
  });
}

std::size_t FakeVerbs::queue_pairs() const {
  const Guard guard(state().mutex);
  return state().pairs.size();
}

std::size_t FakeVerbs::most_queue_pairs() const {
  const Guard guard(state().mutex);
  return state().most_pairs;
}

std::vector<int> FakeVerbs::queue_sizes() const {
  const Guard guard(state().mutex);
  return state().queue_sizes;
}

std::size_t FakeVerbs::hung_pairs() const {
  const Guard guard(state().mutex);
  return state().hung_pairs;
}

bool FakeVerbs::has_overrun() const {
  const Guard guard(state().mutex);
  return state().has_overrun;
}

int FakeVerbs::fork_calls() const {
  const Guard guard(state().mutex);
  return state().fork_calls;
}

FakeVerbs::Gid FakeVerbs::gid(const char* text, ibv_gid_type type) {
  Gid made{{}, type};
  (void)inet_pton(AF_INET6, text, made.gid.raw);
  return made;
}

}  // namespace dunlin::testing
