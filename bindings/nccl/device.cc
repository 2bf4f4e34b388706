#include "bindings/nccl/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "transports/fabric.h"
#include "transports/gpu_access.h"

namespace dunlin::nccl {
namespace {

namespace fs = std::filesystem;

// NCCL compares speeds. This is the one that it assumes itself where the kernel tells none.
constexpr int kUnknownSpeed = 10'000;
// The order of magnitude at which a core copies.
constexpr int kMemorySpeed = 100'000;

std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The number that a file begins with, or -1.
double number_in(const fs::path& file) {
  std::ifstream in(file);
  double number = -1;
  return in >> number ? number : -1;
}

std::string pci_path_of(const fs::path& device) {
  std::error_code error;
  const fs::path path = fs::canonical(device, error);
  return error ? std::string() : path.string();
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    found.push_back(at->path());
  std::sort(found.begin(), found.end());
  return found;
}

using Gpu = Result<std::shared_ptr<GpuDriver>>;

// Says so in the device, whose settings then ask for the way in which GPU memory is reached.
void find_gpu_access(const std::string& transport, const std::string& hca, const Gpu& gpu,
                     Device& device) {
  device.gpu_access =
      gpu ? transport::find_gpu_access(transport, hca, device.config, **gpu) : Status(gpu.status());
}

void add_verbs(const Config& config, const Gpu& gpu, std::vector<Device>& devices) {
  for (const fs::path& hca : entries("/sys/class/infiniband")) {
    for (const fs::path& port : entries(hca / "ports")) {
      if (line_of(port / "state").find("ACTIVE") == std::string::npos) continue;
      Device device;
      const std::string place = hca.filename().string() + ":" + port.filename().string();
      device.name = "verbs:" + place;
      device.pci_path = pci_path_of(hca / "device");
      const double gigabits = number_in(port / "rate");  // "100 Gb/sec (4X EDR)"
      device.speed = gigabits > 0 ? static_cast<int>(gigabits * 1000) : kUnknownSpeed;
      device.port = parse_integer(port.filename().string()).value_or(0);
      device.config = config;
      device.config.transports = {"verbs"};
      device.config.verbs_device = place;
      device.config.verbs_rails = 1;
      find_gpu_access("verbs", hca.filename().string(), gpu, device);
      devices.push_back(std::move(device));
    }
  }
}

// The fastest interface that is up and belongs to a device; or the one that the settings name.
Device tcp_device(const Config& config, const Gpu& gpu) {
  Device device;
  device.name = config.tcp_interface.empty() ? "tcp" : "tcp:" + config.tcp_interface;
  device.speed = -1;
  device.config = config;
  device.config.transports = {"tcp"};
  find_gpu_access("tcp", "", gpu, device);
  for (const fs::path& interface : entries("/sys/class/net")) {
    const bool is_wanted =
        config.tcp_interface.empty()
            ? interface.filename() != "lo" && line_of(interface / "operstate") == "up"
            : interface.filename() == config.tcp_interface;
    const int speed = static_cast<int>(number_in(interface / "speed"));
    if (!is_wanted || speed <= device.speed) continue;
    device.speed = speed;
    device.pci_path = pci_path_of(interface / "device");
  }
  // The kernel gives no speed for virtual interfaces.
  if (device.speed <= 0) device.speed = kUnknownSpeed;
  // NCCL looks for PCI devices only.
  if (device.pci_path.find("/virtual/") != std::string::npos ||
      device.pci_path.find("virtio") != std::string::npos)
    device.pci_path.clear();
  return device;
}

bool is_built(std::string_view name) {
  const auto factories = transport::builtin_transports();
  return std::any_of(factories.begin(), factories.end(),
                     [&](const auto& each) { return each.name == name; });
}

}  // namespace

Result<std::vector<Device>> find_devices(const Environment& environment, const Gpu& gpu) {
  DUNLIN_ASSIGN(const Config config, Config::parse(environment, UnknownNames::kIgnored));
  const bool is_chosen = environment.get("DUNLIN_TRANSPORTS").has_value();
  const auto names = is_chosen ? config.transports : std::vector<std::string>{"verbs"};
  std::vector<Device> devices;
  for (const std::string& name : names) {
    if (!is_built(name)) continue;
    if (name == "verbs") {
      add_verbs(config, gpu, devices);
    } else if (name == "tcp") {
      devices.push_back(tcp_device(config, gpu));
    } else {
      Device device;
      device.name = name;
      device.speed = name == "shm" ? kMemorySpeed : kUnknownSpeed;
      device.config = config;
      device.config.transports = {name};
      find_gpu_access(name, "", gpu, device);
      devices.push_back(std::move(device));
    }
  }
  if (devices.empty() && !is_chosen) devices.push_back(tcp_device(config, gpu));
  if (devices.empty()) {
    return Status(Code::kUnavailable,
                  fmt::format("DUNLIN_TRANSPORTS={}: no such transport has a device here",
                              environment.get("DUNLIN_TRANSPORTS").value_or("")));
  }
  return devices;
}

}  // namespace dunlin::nccl
