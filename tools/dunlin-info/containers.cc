#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "runtime/fd.h"
#include "tools/dunlin-info/report.h"
#include "transports/shm/descriptor_client.h"
#include "transports/shm/descriptor_server.h"

namespace dunlin::tools {
namespace {

namespace shm = transport::shm;

// The id of the namespaces that the kernel makes when it starts (PROC_PID_INIT_INO of proc_ns.h).
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;

ino_t namespace_of(const char* kind) {
  struct stat info {};
  return stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &info) == 0 ? info.st_ino : 0;
}

// Passes a descriptor to this process as to a rank in another container.
Status pass_descriptor(const Config& config) {
  constexpr shm::OfferKey kKey = 1;
  const JobKey key = bootstrap::random_nonce();
  DUNLIN_ASSIGN(const auto server, shm::DescriptorServer::create(key, config.shm_dir));
  const Fd memory(memfd_create("dunlin-info", MFD_CLOEXEC));
  server->offer(kKey, memory.get());
  DUNLIN_ASSIGN(const auto client,
                shm::DescriptorClient::connect(key, server->place(), config.shm_dir));
  return client->fetch(kKey).status();
}

}  // namespace

Json container_report(const Config& config) {
  const ino_t pids = namespace_of("pid");
  const ino_t network = namespace_of("net");
  Json json;
  json["pid_namespace"] =
      fmt::format("{}{}", pids, pids == kFirstPidNamespace ? " (the host's)" : "");
  json["network_namespace"] = fmt::to_string(network);
  json["user_namespace"] = fmt::to_string(namespace_of("user"));
  const Status status = pass_descriptor(config);
  json["can_share_memory"] = status.is_ok();
  if (!status.is_ok()) {
    json["reason"] = std::string(status.message());
  } else if (!config.shm_dir.empty()) {
    json["shares_memory_with"] = fmt::format(
        "ranks of other containers of this host that set DUNLIN_SHM_DIR to where they "
        "see the folder {} of this one",
        config.shm_dir);
  } else {
    json["shares_memory_with"] =
        fmt::format("ranks of other containers of this host in the network namespace {}", network);
    json["remedy"] =
        "for containers with other network namespaces, set DUNLIN_SHM_DIR on all ranks to a folder "
        "that all of them share, such as /dev/shm with --ipc=host";
  }
  return json;
}

}  // namespace dunlin::tools
