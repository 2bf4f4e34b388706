#include "tools/dunlin-info/rdma_device.h"

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/topology.h"
#include "tools/dunlin-info/sysfs.h"
#include "transports/verbs/constants.h"

namespace dunlin::tools {
namespace {

template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};
using Context = std::unique_ptr<ibv_context, Destroyer<ibv_close_device>>;
using Domain = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;
using MemoryKey = std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>>;

const char* transport_of(const ibv_device& device) {
  switch (device.transport_type) {
    case IBV_TRANSPORT_IB:
      return "InfiniBand (RoCE on Ethernet)";
    case IBV_TRANSPORT_IWARP:
      return "iWARP";
    default:
      return "other";
  }
}

const char* atomics_of(const ibv_device_attr& device) {
  switch (device.atomic_cap) {
    case IBV_ATOMIC_HCA:
      return "with this device only (HCA)";
    case IBV_ATOMIC_GLOB:
      return "with the CPUs (GLOB)";
    default:
      return "none";
  }
}

std::string paging_of(const ibv_odp_caps& paging) {
  if ((paging.general_caps & IBV_ODP_SUPPORT) == 0) return "none";
  constexpr std::pair<std::uint32_t, const char*> kOperations[] = {
      {IBV_ODP_SUPPORT_WRITE, " write"},
      {IBV_ODP_SUPPORT_READ, " read"},
      {IBV_ODP_SUPPORT_ATOMIC, " atomic"},
      {IBV_ODP_SUPPORT_SEND, " send"},
      {IBV_ODP_SUPPORT_RECV, " receive"}};
  std::string text = "RC:";
  for (const auto& [bit, name] : kOperations) {
    if ((paging.per_transport_caps.rc_odp_caps & bit) != 0) text += name;
  }
  const bool is_implicit = (paging.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0;
  return text + (is_implicit ? "; implicit, too" : "; not implicit");
}

// Tries an invalid descriptor. A driver that checks it can register memory by such descriptors.
std::string dma_buf_of(ibv_pd* domain) {
  constexpr std::size_t kLength = 4096;
  const MemoryKey key(ibv_reg_dmabuf_mr(domain, 0, kLength, 0, -1, IBV_ACCESS_LOCAL_WRITE));
  switch (key ? EBADF : errno) {
    case EBADF:
      return "yes";
    case EOPNOTSUPP:
    case ENOSYS:
    case EPROTONOSUPPORT:
      return "no";
    default:
      return fmt::format("unknown ({})", std::strerror(errno));
  }
}

void add_inline_limit(Json& limits, ibv_context* context, ibv_pd* domain) {
  const CompletionQueue queue(ibv_create_cq(context, 2, nullptr, nullptr, 0));
  if (!queue) return;
  for (const std::uint32_t wanted : {transport::verbs::kInlineWanted, 0U}) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = queue.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {1, 1, 1, 1, wanted};
    if (const QueuePair made(ibv_create_qp(domain, &attributes)); made) {
      limits["inline_bytes"] = attributes.cap.max_inline_data;
      return;
    }
  }
}

Json limits_of(const ibv_device_attr& device) {
  return {{"max_qp", device.max_qp},
          {"max_mr", device.max_mr},
          {"max_mr_size_bytes", device.max_mr_size},
          {"max_qp_wr", device.max_qp_wr},
          {"max_sge", device.max_sge},
          {"max_rd_atom", device.max_qp_rd_atom}};
}

void add_place(Json& json, const std::string& name) {
  const auto node = numa_node_of("/sys/class/infiniband/" + name + "/device");
  if (!node) {
    json["distance"] = "unknown, as the kernel names no NUMA node";
    return;
  }
  json["numa_node"] = *node;
  const int here = current_numa_node();
  json["distance"] = *node == here ? "near: on this thread's NUMA node"
                                   : fmt::format("far: this thread runs on NUMA node {}", here);
}

// Adds "reason" and "remedy" for a device that cannot be opened.
void add_refusal(Json& json, int error) {
  json["reason"] = fmt::format("can't be opened: {}", std::strerror(error));
  if (error == EACCES || error == EPERM) {
    json["remedy"] =
        "allow this user to read and write /dev/infiniband/uverbs* (by a udev rule, or its group)";
  } else if (error == ENOENT || error == ENXIO) {
    json["remedy"] =
        "modprobe ib_uverbs; start containers with --device=/dev/infiniband/uverbs0 (and so on) "
        "and --device=/dev/infiniband/rdma_cm";
  }
}

Json describe(ibv_device* device, const Addresses& usable) {
  const std::string name = ibv_get_device_name(device);
  Json json;
  json["node_type"] = ibv_node_type_str(device->node_type);
  json["transport"] = transport_of(*device);
  add_place(json, name);
  const Context context(ibv_open_device(device));
  if (!context) {
    add_refusal(json, transport::verbs::error_of_opening(device->dev_name, errno));
    return json;
  }
  ibv_device_attr_ex all{};
  if (const int error = ibv_query_device_ex(context.get(), nullptr, &all); error != 0) {
    json["reason"] = fmt::format("can't be asked: {}", std::strerror(error));
    return json;
  }
  const ibv_device_attr& attributes = all.orig_attr;
  if (attributes.fw_ver[0] != '\0') json["firmware"] = attributes.fw_ver;
  json["vendor_id"] = fmt::format("{:#06x}", attributes.vendor_id);
  json["part_id"] = attributes.vendor_part_id;
  json["atomics"] = atomics_of(attributes);
  json["on_demand_paging"] = paging_of(all.odp_caps);
  Json limits = limits_of(attributes);
  if (const Domain domain(ibv_alloc_pd(context.get())); domain) {
    json["dma_buf"] = dma_buf_of(domain.get());
    add_inline_limit(limits, context.get(), domain.get());
  }
  json["limits"] = std::move(limits);
  for (int port = 1; port <= attributes.phys_port_cnt; ++port)
    json["ports"][std::to_string(port)] = rdma_port(name, context.get(), port, usable);
  return json;
}

}  // namespace

Json rdma_devices(const Addresses& usable) {
  Json json = Json::object();
  int count = 0;
  const std::unique_ptr<ibv_device*, Destroyer<ibv_free_device_list>> list(
      ibv_get_device_list(&count));
  for (int i = 0; list && i < count; ++i) {
    ibv_device* const device = list.get()[i];
    json[ibv_get_device_name(device)] = describe(device, usable);
  }
  return json;
}

}  // namespace dunlin::tools
