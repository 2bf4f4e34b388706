#include "transports/ucx/devices.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <system_error>

#include "runtime/bootstrap/net.h"

namespace dunlin::transport::ucx {
namespace {

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    names.push_back(at->path().filename());
  }
  return names;
}

}  // namespace

std::vector<std::string> rdma_ports() {
  const std::filesystem::path devices = "/sys/class/infiniband";
  std::vector<std::string> ports;
  for (const std::string& device : names_in(devices)) {
    for (const std::string& port : names_in(devices / device / "ports"))
      ports.push_back(fmt::format("{}:{}", device, port));
  }
  return ports;
}

std::string network_devices(const Config& config) {
  if (Environment::of_process().get("UCX_NET_DEVICES")) return {};
  const auto coordinator = bootstrap::Endpoint::parse(config.bootstrap_address);
  if (!coordinator) return {};
  const std::string interface = bootstrap::interface_toward(*coordinator);
  if (interface.empty()) return {};
  std::vector<std::string> devices = rdma_ports();
  devices.push_back(interface);
  return fmt::format("{}", fmt::join(devices, ","));
}

}  // namespace dunlin::transport::ucx
