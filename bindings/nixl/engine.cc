#include "bindings/nixl/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/gpu/cuda_driver.h"

namespace dunlin::nixl {
namespace {

nixl_status_t code_of(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return NIXL_SUCCESS;
    case Code::kBusy:
      return NIXL_IN_PROG;
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      return NIXL_ERR_INVALID_PARAM;
    case Code::kNotFound:
      return NIXL_ERR_NOT_FOUND;
    case Code::kAlreadyExists:
      return NIXL_ERR_REPOST_ACTIVE;
    case Code::kPermissionDenied:
      return NIXL_ERR_NOT_ALLOWED;
    case Code::kCorrupted:
      return NIXL_ERR_MISMATCH;
    case Code::kPeerDead:
    case Code::kClosed:
      return NIXL_ERR_REMOTE_DISCONNECT;
    default:
      return NIXL_ERR_BACKEND;
  }
}

// NIXL has codes only, so that the text is logged.
nixl_status_t report(const Status& status, std::string_view what) {
  if (!status.is_ok() && !status.is_busy()) DUNLIN_WARN("nixl: {}: {}", what, status.to_string());
  return code_of(status);
}

// NIXL hands these back as what they were made as.
struct LocalMD final : nixlBackendMD {
  explicit LocalMD(const LocalMemory& registered) : nixlBackendMD(true), memory(registered) {}
  LocalMemory memory;
};
struct RemoteMD final : nixlBackendMD {
  explicit RemoteMD(RemoteMemory described) : nixlBackendMD(false), memory(std::move(described)) {}
  RemoteMemory memory;
};
struct Request final : nixlBackendReqH {
  std::unique_ptr<Transfer> transfer;
};

std::byte* address_of(const nixlBasicDesc& descriptor) {
  return reinterpret_cast<std::byte*>(descriptor.addr);
}

Result<Config> configure(const nixl_b_params_t& parameters) {
  Environment environment = Environment::of_process();
  for (const auto& [name, value] : parameters) {
    if (!value.empty() && name == "transports") environment.set("DUNLIN_TRANSPORTS", value);
    if (!value.empty() && name == "interface") environment.set("DUNLIN_TCP_INTERFACE", value);
  }
  // The environment may be meant for another version of Dunlin.
  return Config::parse(environment, UnknownNames::kIgnored);
}

}  // namespace

nixl_b_params_t Engine::options() {
  return {{"transports", ""}, {"interface", ""}};
}

nixl_mem_list_t Engine::memory_types() {
  nixl_mem_list_t kinds = {DRAM_SEG};
  // Without initializing CUDA: the program may still fork processes that use it.
  if (cuda_version() > 0) kinds.push_back(VRAM_SEG);
  return kinds;
}

Engine::Engine(const nixlBackendInitParams* parameters) : nixlBackendEngine(parameters) {
  const auto create = [&]() -> Result<std::unique_ptr<Agent>> {
    DUNLIN_ASSIGN(Config config, configure(*parameters->customParams));
    return Agent::create(std::move(config),
                         {.name = localAgent,
                          .has_progress_thread = parameters->enableProgTh,
                          .progress_interval = std::chrono::microseconds(parameters->pthrDelay)});
  };
  auto made = create();
  initErr = !made.is_ok();
  if (made) {
    agent_ = std::move(*made);
  } else {
    report(made.status(), "the backend cannot be created");
  }
}

nixl_status_t Engine::registerMem(const nixlBlobDesc& memory, const nixl_mem_t& kind,
                                  nixlBackendMD*& out) {
  if (kind != DRAM_SEG && kind != VRAM_SEG) return NIXL_ERR_NOT_SUPPORTED;
  auto made = agent_->register_memory(address_of(memory), memory.len, kind == VRAM_SEG);
  if (!made) return report(made.status(), "registering memory");
  out = new LocalMD(*made);
  return NIXL_SUCCESS;
}

nixl_status_t Engine::deregisterMem(nixlBackendMD* memory) {
  auto* const local = static_cast<LocalMD*>(memory);
  const Status status = agent_->deregister(local->memory);
  if (status.is_ok()) delete local;
  return report(status, "deregistering memory");
}

nixl_status_t Engine::getPublicData(const nixlBackendMD* memory, std::string& out) const {
  out = static_cast<const LocalMD*>(memory)->memory.describe();
  return NIXL_SUCCESS;
}

nixl_status_t Engine::loadLocalMD(nixlBackendMD* memory, nixlBackendMD*& out) {
  const LocalMemory& local = static_cast<const LocalMD*>(memory)->memory;
  out = new RemoteMD({agent_->name(), local.id, local.base, local.size});
  return NIXL_SUCCESS;
}

nixl_status_t Engine::loadRemoteMD(const nixlBlobDesc& memory, const nixl_mem_t& kind,
                                   const std::string& agent, nixlBackendMD*& out) {
  if (kind != DRAM_SEG && kind != VRAM_SEG) return NIXL_ERR_NOT_SUPPORTED;
  auto parsed = RemoteMemory::parse(memory.metaInfo, agent);
  if (!parsed) return report(parsed.status(), "loading metadata");
  out = new RemoteMD(std::move(*parsed));
  return NIXL_SUCCESS;
}

nixl_status_t Engine::unloadMD(nixlBackendMD* memory) {
  agent_->forget(static_cast<RemoteMD*>(memory)->memory);
  delete memory;
  return NIXL_SUCCESS;
}

nixl_status_t Engine::getConnInfo(std::string& out) const {
  const Bytes& blob = agent_->blob();
  out.assign(reinterpret_cast<const char*>(blob.data()), blob.size());
  return NIXL_SUCCESS;
}

nixl_status_t Engine::loadRemoteConnInfo(const std::string& agent, const std::string& info) {
  return report(agent_->add_peer(agent, as_bytes(info)),
                fmt::format("loading the connection information of agent '{}'", agent));
}

nixl_status_t Engine::connect(const std::string& agent) {
  return report(agent_->connect(agent), fmt::format("connecting to agent '{}'", agent));
}

nixl_status_t Engine::disconnect(const std::string& agent) {
  return report(agent_->disconnect(agent), fmt::format("disconnecting agent '{}'", agent));
}

nixl_status_t Engine::prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                               const nixl_meta_dlist_t& remote, const std::string& agent,
                               nixlBackendReqH*& handle, const nixl_opt_b_args_t*) const {
  const auto count = static_cast<std::size_t>(local.descCount());
  if (remote.descCount() != local.descCount()) return NIXL_ERR_INVALID_PARAM;
  std::vector<Row> rows(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& here = local[i];
    const auto& there = remote[i];
    if (here.len != there.len || here.metadataP == nullptr || there.metadataP == nullptr)
      return NIXL_ERR_INVALID_PARAM;
    rows[i] = {&static_cast<const LocalMD*>(here.metadataP)->memory, address_of(here),
               &static_cast<const RemoteMD*>(there.metadataP)->memory, address_of(there), here.len};
  }
  auto made =
      agent_->prepare(operation == NIXL_WRITE ? Direction::kWrite : Direction::kRead, agent, rows);
  if (!made) return report(made.status(), "preparing a transfer");
  auto request = std::make_unique<Request>();
  request->transfer = std::move(*made);
  handle = request.release();
  return NIXL_SUCCESS;
}

nixl_status_t Engine::postXfer(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                               const nixl_meta_dlist_t&, const std::string&,
                               nixlBackendReqH*& handle, const nixl_opt_b_args_t* arguments) const {
  std::optional<std::string> notification;
  if (arguments != nullptr && arguments->hasNotif) notification = arguments->notifMsg;
  return report(agent_->start(*static_cast<Request*>(handle)->transfer, std::move(notification)),
                "posting a transfer");
}

nixl_status_t Engine::checkXfer(nixlBackendReqH* handle) const {
  return report(agent_->check(*static_cast<Request*>(handle)->transfer), "a transfer");
}

nixl_status_t Engine::releaseReqH(nixlBackendReqH* handle) const {
  auto* const request = static_cast<Request*>(handle);
  agent_->release(std::move(request->transfer));
  delete request;
  return NIXL_SUCCESS;
}

nixl_status_t Engine::estimateXferCost(const nixl_xfer_op_t&, const nixl_meta_dlist_t& local,
                                       const nixl_meta_dlist_t&, const std::string& agent,
                                       nixlBackendReqH* const&, std::chrono::microseconds& duration,
                                       std::chrono::microseconds& error_margin, nixl_cost_t& method,
                                       const nixl_opt_args_t*) const {
  const auto cost = agent_->estimate(agent);
  if (!cost) return report(cost.status(), "estimating the cost of a transfer");
  std::size_t bytes = 0;
  for (const auto& descriptor : local) bytes += descriptor.len;
  const Duration time =
      cost->latency + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
                          static_cast<double>(bytes) / cost->bytes_per_s));
  duration = std::chrono::ceil<std::chrono::microseconds>(time);
  error_margin = duration / 2;
  method = nixl_cost_t::ANALYTICAL_BACKEND;
  return NIXL_SUCCESS;
}

nixl_status_t Engine::getNotifs(notif_list_t& notifications) {
  for (auto& notification : agent_->take_notifications())
    notifications.push_back(std::move(notification));
  return NIXL_SUCCESS;
}

nixl_status_t Engine::genNotif(const std::string& agent, const std::string& text) const {
  return report(agent_->notify(agent, text), fmt::format("notifying agent '{}'", agent));
}

}  // namespace dunlin::nixl
