// The functions of libibverbs, for the device that does not exist (fake_verbs.h).
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/support/fake_verbs_state.h"

// verbs.h has macros in place of these.
#undef ibv_reg_mr
#undef ibv_query_port

using namespace dunlin::testing::fake_verbs;

namespace {

// Whether a completion queue may have this size. Notes it if so.
bool is_size_granted(int size) {
  if (size < 1 || size > state().options.most_completions) return false;
  state().queue_sizes.push_back(size);
  return true;
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  ibv_device& device = state().device;
  std::strcpy(device.name, "made_up_0");
  std::strcpy(device.dev_name, "uverbs_made_up");
  device.node_type = IBV_NODE_CA;
  device.transport_type = IBV_TRANSPORT_IB;
  if (count != nullptr) *count = 1;
  return state().devices;
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

ibv_context* ibv_open_device(ibv_device* device) {
  auto* const made = new verbs_context{};
  made->sz = sizeof *made;
  made->query_port = query_port;
  made->query_device_ex = query_device_ex;
  ibv_context& context = made->context;
  context.device = device;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  context.ops.poll_cq = poll_queue;
  context.ops.req_notify_cq = arm_queue;
  context.ops.post_send = post_send;
  context.ops.post_recv = post_receive;
  return &context;
}
int ibv_close_device(ibv_context* context) {
  close(context->async_fd);
  delete verbs_get_ctx(context);
  return 0;
}

int ibv_query_device(ibv_context*, ibv_device_attr* found) {
  const Guard guard(state().mutex);
  *found = {};
  found->phys_port_cnt = 1;
  found->max_cqe = state().options.most_completions;
  found->max_qp_rd_atom = found->max_qp_init_rd_atom = 16;
  found->atomic_cap = state().options.has_atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  return 0;
}

int _ibv_query_gid_ex(ibv_context*, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t, std::size_t) {
  const Guard guard(state().mutex);
  const auto& gids = state().options.gids;
  if (index >= gids.size()) return EINVAL;
  *entry = {};
  entry->gid = gids[index].gid;
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = gids[index].type;
  return 0;
}

int ibv_query_pkey(ibv_context*, std::uint8_t, int index, __be16* key) {
  const Guard guard(state().mutex);
  const auto& keys = state().options.pkeys;
  if (index < 0 || static_cast<std::size_t>(index) >= keys.size()) return -1;
  *key = htons(keys[static_cast<std::size_t>(index)]);
  return 0;
}

ibv_fork_status ibv_is_fork_initialized() {
  const Guard guard(state().mutex);
  return state().options.fork;
}
int ibv_fork_init() {
  const Guard guard(state().mutex);
  if (state().registrations.empty()) ++state().fork_calls;
  state().options.fork = IBV_FORK_ENABLED;
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return new ibv_pd{context, 0};
}
int ibv_dealloc_pd(ibv_pd* domain) {
  delete domain;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t size, int access) {
  return register_memory(domain, address, size, static_cast<unsigned>(access));
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, std::size_t size, std::uint64_t,
                         unsigned access) {
  return register_memory(domain, address, size, access);
}
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int) {
  errno = EOPNOTSUPP;
  return nullptr;
}
int ibv_dereg_mr(ibv_mr* which) {
  const Guard guard(state().mutex);
  state().regions.erase(which->rkey);
  delete static_cast<Region*>(which);
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  auto* const channel = new Channel;
  channel->context = context;
  channel->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  return channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* which) {
  close(which->fd);
  delete static_cast<Channel*>(which);
  return 0;
}
int ibv_get_cq_event(ibv_comp_channel* which, ibv_cq** queue, void** context) {
  eventfd_t number = 0;
  if (eventfd_read(which->fd, &number) != 0) return -1;
  const Guard guard(state().mutex);
  auto& channel = static_cast<Channel&>(*which);
  *queue = channel.announced.front();
  *context = nullptr;
  channel.announced.pop_front();
  return 0;
}
void ibv_ack_cq_events(ibv_cq*, unsigned) {}

ibv_cq* ibv_create_cq(ibv_context* context, int size, void*, ibv_comp_channel* channel, int) {
  const Guard guard(state().mutex);
  if (!is_size_granted(size)) {
    errno = EINVAL;
    return nullptr;
  }
  auto* const queue = new Queue;
  queue->context = context;
  queue->channel = channel;
  queue->cqe = size;
  return queue;
}
int ibv_resize_cq(ibv_cq* queue, int size) {
  const Guard guard(state().mutex);
  if (!state().options.can_resize) return EOPNOTSUPP;
  if (state().options.pretends_to_resize) return 0;
  if (!is_size_granted(size)) return EINVAL;
  queue->cqe = size;
  return 0;
}
int ibv_destroy_cq(ibv_cq* which) {
  const Guard guard(state().mutex);
  auto* const queue = static_cast<Queue*>(which);
  if (queue->channel != nullptr)
    std::erase(static_cast<Channel*>(queue->channel)->announced, which);
  delete queue;
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  const Guard guard(state().mutex);
  State& device = state();
  if (attributes->cap.max_inline_data > device.options.most_inline) {
    errno = EINVAL;
    return nullptr;
  }
  if (device.pairs.size() >= device.options.most_pairs) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* const pair = new Pair;
  pair->context = domain->context;
  pair->pd = domain;
  pair->send_cq = attributes->send_cq;
  pair->recv_cq = attributes->recv_cq;
  pair->qp_type = attributes->qp_type;
  pair->state = IBV_QPS_RESET;
  pair->cap = attributes->cap;
  pair->qp_num = ++device.last_pair;
  device.pairs[pair->qp_num] = pair;
  const auto of_this_rank = std::ranges::count_if(
      device.pairs, [&](const auto& one) { return one.second->context == pair->context; });
  device.most_pairs = std::max(device.most_pairs, static_cast<std::size_t>(of_this_rank));
  if (pair->cap.max_inline_data != 0) device.inline_sizes.push_back(pair->cap.max_inline_data);
  return pair;
}
int ibv_modify_qp(ibv_qp* which, ibv_qp_attr* change, int mask) {
  const Guard guard(state().mutex);
  auto& pair = static_cast<Pair&>(*which);
  if ((mask & IBV_QP_PKEY_INDEX) != 0) pair.pkey_index = change->pkey_index;
  if ((mask & IBV_QP_DEST_QPN) != 0) pair.peer = change->dest_qp_num;
  if ((mask & IBV_QP_AV) != 0) state().connections.push_back({change->ah_attr, pair.pkey_index});
  if ((mask & IBV_QP_TIMEOUT) != 0) pair.timeout = change->timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) pair.retries = change->retry_cnt;
  pair.state = change->qp_state;
  if (pair.state == IBV_QPS_ERR) break_pair(pair);
  return 0;
}
int ibv_query_qp(ibv_qp* which, ibv_qp_attr* found, int, ibv_qp_init_attr* initial) {
  const Guard guard(state().mutex);
  const auto& pair = static_cast<Pair&>(*which);
  found->cap = initial->cap = pair.cap;
  found->timeout = pair.timeout;
  found->retry_cnt = pair.retries;
  return 0;
}
int ibv_destroy_qp(ibv_qp* which) {
  const Guard guard(state().mutex);
  state().pairs.erase(which->qp_num);
  delete static_cast<Pair*>(which);
  return 0;
}

int ibv_get_async_event(ibv_context*, ibv_async_event*) {
  return -1;
}
void ibv_ack_async_event(ibv_async_event*) {}

}  // extern "C"
