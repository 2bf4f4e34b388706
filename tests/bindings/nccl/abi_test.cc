// Compares bindings/nccl/abi.h with NCCL's own headers. It is compiled only:
// tests/bindings/nccl/meson.build.
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#include "common.h"
#include "net_device.h"
#define NCCL_NET_MAX_DEVS_PER_NIC 4

#include "net_v8.h"

#include "net_v9.h"

#include "net_v10.h"
#undef NCCL_NET_TRAFFIC_CLASS_UNDEF

#include "net_v11.h"

#include "bindings/nccl/abi.h"

using namespace dunlin::nccl::abi;
static_assert(sizeof(ncclNet_v8_t) == sizeof(NetV8) && sizeof(ncclNet_v9_t) == sizeof(NetV9) &&
              sizeof(ncclNet_v10_t) == sizeof(NetV10) && sizeof(ncclNet_v11_t) == sizeof(NetV11));
static_assert(sizeof(ncclNetProperties_v8_t) == sizeof(PropertiesV8) &&
              sizeof(ncclNetProperties_v9_t) == sizeof(PropertiesV9) &&
              sizeof(ncclNetProperties_v10_t) == sizeof(PropertiesV10) &&
              sizeof(ncclNetProperties_v11_t) == sizeof(PropertiesV11));
#define O(T, a, U, b) static_assert(offsetof(T, a) == offsetof(U, b))
O(ncclNet_v8_t, isend, NetV8, send);
O(ncclNet_v8_t, closeListen, NetV8, close_listen);
O(ncclNet_v8_t, test, NetV8, test);
O(ncclNet_v9_t, isend, NetV9, send);
O(ncclNet_v9_t, makeVDevice, NetV9, make_device);
O(ncclNet_v10_t, irecv, NetV10, receive);
O(ncclNet_v10_t, makeVDevice, NetV10, make_device);
O(ncclNet_v11_t, irecv, NetV11, receive);
O(ncclNet_v11_t, finalize, NetV11, finalize);
O(ncclNet_v11_t, setNetAttr, NetV11, set_attributes);
O(ncclNetProperties_v8_t, speed, PropertiesV8, speed);
O(ncclNetProperties_v8_t, maxRecvs, PropertiesV8, max_receives);
O(ncclNetProperties_v9_t, speed, PropertiesV9, speed);
O(ncclNetProperties_v9_t, vProps, PropertiesV9, virtual_device);
O(ncclNetProperties_v9_t, maxCollBytes, PropertiesV9, max_collective_bytes);
O(ncclNetProperties_v11_t, maxP2pBytes, PropertiesV11, max_p2p_bytes);
O(ncclNetProperties_v11_t, maxMultiRequestSize, PropertiesV11, max_requests_at_once);
