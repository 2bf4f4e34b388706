#include "transports/ucx/devices.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "runtime/bootstrap/net.h"
#include "runtime/log.h"

namespace dunlin::transport::ucx {
namespace {

std::vector<std::filesystem::path> entries(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    found.push_back(at->path());
  }
  return found;
}

bool is_active(const std::filesystem::path& port) {
  std::ifstream file(port / "state");  // such as "4: ACTIVE"
  std::string state;
  std::getline(file, state);
  return state.find("ACTIVE") != std::string::npos;
}

bool is_loopback(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

}  // namespace

std::vector<std::string> rdma_ports() {
  std::vector<std::string> names;
  for (const auto& device : entries("/sys/class/infiniband")) {
    for (const auto& port : entries(device / "ports")) {
      if (is_active(port))
        names.push_back(fmt::format("{}:{}", device.filename().string(), port.filename().string()));
    }
  }
  return names;
}

std::string network_devices(const Config& config) {
  if (Environment::of_process().get("UCX_NET_DEVICES")) return {};
  const auto coordinator = bootstrap::Endpoint::parse(config.bootstrap_address);
  if (!coordinator) return {};
  std::string interface = "lo";
  if (!is_loopback(coordinator->host)) {
    const auto found = bootstrap::interface_toward(*coordinator);
    // A host's own name often has a loopback address on that host, which no other host reaches.
    if (!found || found == interface) return {};
    interface = *found;
  }
  std::vector<std::string> devices = rdma_ports();
  devices.push_back(interface);
  DUNLIN_INFO("ucx: TCP uses {}, which leads to the coordinator (UCX_NET_DEVICES replaces that)",
              interface);
  return fmt::format("{}", fmt::join(devices, ","));
}

}  // namespace dunlin::transport::ucx
