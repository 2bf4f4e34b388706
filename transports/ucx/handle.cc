#include "transports/ucx/handle.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/config.h"
#include "runtime/memory/lock_limit.h"
#include "transports/ucx/constants.h"

namespace dunlin::transport::ucx {

Code to_code(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return Code::kOk;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
      return Code::kResourceExhausted;
    case UCS_ERR_INVALID_PARAM:
      return Code::kInvalidArgument;
    case UCS_ERR_NO_ELEM:
      return Code::kNotFound;
    case UCS_ERR_OUT_OF_RANGE:
      return Code::kOutOfRange;
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
      return Code::kUnavailable;
    case UCS_ERR_MESSAGE_TRUNCATED:
    case UCS_ERR_INVALID_ADDR:
      return Code::kCorrupted;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_REJECTED:
      return Code::kPeerDead;
    case UCS_ERR_CANCELED:
      return Code::kClosed;
    default:
      return Code::kIoError;
  }
}

Status to_status(std::string_view what, ucs_status_t status) {
  return {to_code(status), fmt::format("{}: {}", what, ucs_status_string(status))};
}

namespace {

// The description that UCX's context gives of itself, in text form.
std::string description_of(ucp_context_h context) {
  char* text = nullptr;
  std::size_t size = 0;
  FILE* const stream = open_memstream(&text, &size);
  if (stream == nullptr) return "";
  ucp_context_print_info(context, stream);
  std::fclose(stream);
  std::string description(text, size);
  std::free(text);
  return description;
}

enum class SharedMemory { kOff, kAsConfigured, kForEndpointsThatReportFailures };

Result<ucp_context_h> init(SharedMemory shared_memory, const std::string& devices) {
  ucp_config_t* config = nullptr;
  if (const auto status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return to_status("reading UCX's configuration", status);
  }
  if (shared_memory == SharedMemory::kOff) (void)ucp_config_modify(config, "TLS", "^mm");
  if (shared_memory == SharedMemory::kForEndpointsThatReportFailures)
    (void)ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
  if (!devices.empty()) (void)ucp_config_modify(config, "NET_DEVICES", devices.c_str());
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "dunlin";
  ucp_context_h handle = nullptr;
  const auto status = ucp_init(&params, config, &handle);
  ucp_config_release(config);
  if (status != UCS_OK) return to_status("ucp_init", status);
  return handle;
}

// ucp_worker_create() does not return if it cannot lock the memory in which it receives datagrams.
Status check_locked_memory() {
  const auto limit = locked_memory_limit();
  if (!limit || *limit >= kNeededLockedMemory) return Status::ok();
  return {Code::kUnavailable,
          fmt::format("UCX would lock more memory for the RDMA devices than the {} KiB that may be "
                      "locked; {}; or set UCX_TLS=tcp,self to leave the devices alone",
                      *limit >> 10, locked_memory_remedy())};
}

}  // namespace

Result<std::unique_ptr<Context>> Context::create(const std::string& devices) {
  // A process that is killed while it writes to the queue of a peer's shared memory leaves a gap in
  // it, at which the peer stops forever, so that it receives from no other process either. So UCX's
  // shared memory is used only if it is asked for.
  const bool is_asked_for = Environment::of_process().get("UCX_TLS").has_value();
  DUNLIN_ASSIGN(const ucp_context_h plain,
                init(is_asked_for ? SharedMemory::kAsConfigured : SharedMemory::kOff, devices));
  std::unique_ptr<Context> context(new Context(plain));
  // UCX uses its shared memory for endpoints that report failures only if this setting permits it
  // to probe the peer's process now and then. UCX warns of settings that are not used, so it is set
  // only if UCX_TLS permits shared memory, which the first context's description shows.
  const std::string description = description_of(plain);
  if (description.find(" ud_") != std::string::npos) DUNLIN_TRY(check_locked_memory());
  if (description.find("sysv/") == std::string::npos &&
      description.find("posix/") == std::string::npos) {
    return context;
  }
  DUNLIN_ASSIGN(const ucp_context_h sharing,
                init(SharedMemory::kForEndpointsThatReportFailures, devices));
  return std::unique_ptr<Context>(new Context(sharing));
}

Result<std::unique_ptr<Worker>> Worker::create(const Context& context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
  // One thread at a time, but not always the same one, because the owner of a fabric may change.
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.events = UCP_WAKEUP_RMA | UCP_WAKEUP_TX | UCP_WAKEUP_RX;
  ucp_worker_h handle = nullptr;
  if (const auto status = ucp_worker_create(context.handle(), &params, &handle); status != UCS_OK) {
    return to_status("ucp_worker_create", status);
  }
  std::unique_ptr<Worker> worker(new Worker(handle));
  if (const auto status = ucp_worker_get_efd(handle, &worker->event_fd_); status != UCS_OK) {
    return to_status("ucp_worker_get_efd", status);
  }
  return worker;
}

Result<Bytes> Worker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  if (const auto status = ucp_worker_get_address(handle_, &address, &size); status != UCS_OK) {
    return to_status("ucp_worker_get_address", status);
  }
  const auto* begin = reinterpret_cast<const std::byte*>(address);
  Bytes bytes(begin, begin + size);
  ucp_worker_release_address(handle_, address);
  return bytes;
}

Status Worker::set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = id;
  params.cb = handler;
  params.arg = argument;
  const auto status = ucp_worker_set_am_recv_handler(handle_, &params);
  return status == UCS_OK ? Status::ok() : to_status("ucp_worker_set_am_recv_handler", status);
}

Result<std::unique_ptr<Endpoint>> Endpoint::create(const Worker& worker,
                                                   std::span<const std::byte> address,
                                                   ucp_err_handler_cb_t on_error, void* argument,
                                                   bool reports_failure) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = reports_failure ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler.cb = on_error;
  params.err_handler.arg = argument;
  ucp_ep_h handle = nullptr;
  if (const auto status = ucp_ep_create(worker.handle(), &params, &handle); status != UCS_OK) {
    return to_status("ucp_ep_create", status);
  }
  return std::unique_ptr<Endpoint>(new Endpoint(handle));
}

Endpoint::~Endpoint() {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(handle_, &params);
  // The closing continues by itself. Freeing the request says that its result is not needed.
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
}

Result<std::unique_ptr<MemoryHandle>> MemoryHandle::map(const Context& context,
                                                        const MemoryRegion& memory) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = memory.data();
  params.length = memory.size();
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  ucp_mem_h handle = nullptr;
  if (const auto status = ucp_mem_map(context.handle(), &params, &handle); status != UCS_OK) {
    return to_status(fmt::format("ucp_mem_map of {} bytes", memory.size()), status);
  }
  return std::unique_ptr<MemoryHandle>(new MemoryHandle(context.handle(), handle));
}

Result<Bytes> MemoryHandle::pack_key() const {
  void* buffer = nullptr;
  std::size_t size = 0;
  if (const auto status = ucp_rkey_pack(context_, handle_, &buffer, &size); status != UCS_OK) {
    return to_status("ucp_rkey_pack", status);
  }
  const auto* begin = static_cast<const std::byte*>(buffer);
  Bytes bytes(begin, begin + size);
  ucp_rkey_buffer_release(buffer);
  return bytes;
}

Result<std::unique_ptr<RemoteKey>> RemoteKey::unpack(const Endpoint& endpoint,
                                                     std::span<const std::byte> packed) {
  ucp_rkey_h handle = nullptr;
  if (const auto status = ucp_ep_rkey_unpack(endpoint.handle(), packed.data(), &handle);
      status != UCS_OK) {
    return to_status("ucp_ep_rkey_unpack", status);
  }
  return std::unique_ptr<RemoteKey>(new RemoteKey(handle));
}

}  // namespace dunlin::transport::ucx
