// The proximity of devices in an artificial sysfs with two sockets and a switch below a switch.
#include "runtime/pci.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace dunlin {
namespace {

namespace fs = std::filesystem;

class PciTest : public ::testing::Test {
 protected:
  PciTest() : root_(fs::temp_directory_path() / ("dunlin-pci-" + std::to_string(getpid()))) {
    add("gpu", "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0", 0);
    add("beside_gpu", "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:04.0/0000:3e:00.0", 0);
    add("second_port", "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:04.0/0000:3e:00.1", 0);
    add("below_another_switch",
        "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:08.0/0000:40:00.0/0000:41:00.0/0000:42:00.0",
        0);
    add("on_the_root", "pci0000:3a/0000:3a:02.0/0000:50:00.0", 0);
    add("same_socket", "pci0000:5d/0000:5d:00.0/0000:5e:00.0", 0);
    add("other_socket", "pci0000:ae/0000:ae:00.0/0000:af:00.0", 1);
    add("node_unknown", "pci0000:17/0000:17:00.0/0000:18:00.0", -1);
    add("virtual", "virtual/net/v0", -1);
  }
  ~PciTest() override { fs::remove_all(root_); }

  fs::path folder(const std::string& name) const { return root_ / "class" / name / "device"; }
  Proximity between(const std::string& one, const std::string& other) const {
    EXPECT_EQ(proximity(folder(one), folder(other)), proximity(folder(other), folder(one)));
    return proximity(folder(one), folder(other));
  }

 private:
  // As in the real sysfs, the class contains links to the devices.
  void add(const std::string& name, const fs::path& place, int node) {
    const fs::path device = root_ / "devices" / place;
    fs::create_directories(device);
    std::ofstream(device / "numa_node") << node << "\n";
    fs::create_directories(root_ / "class" / name);
    fs::create_directory_symlink(device, folder(name));
  }

  const fs::path root_;
};

TEST_F(PciTest, TheFewerBridgesTheNearer) {
  EXPECT_EQ(between("gpu", "beside_gpu"), Proximity::kSwitch);
  EXPECT_EQ(between("beside_gpu", "second_port"), Proximity::kSwitch);
  EXPECT_EQ(between("gpu", "gpu"), Proximity::kSwitch);
  EXPECT_EQ(between("gpu", "below_another_switch"), Proximity::kSwitches);
  EXPECT_EQ(between("gpu", "on_the_root"), Proximity::kHostBridge);
  EXPECT_LT(Proximity::kSwitch, Proximity::kSwitches);
  EXPECT_LT(Proximity::kSwitches, Proximity::kHostBridge);
}

TEST_F(PciTest, BeyondATreeNumaNodesCount) {
  EXPECT_EQ(between("gpu", "same_socket"), Proximity::kNode);
  EXPECT_EQ(between("gpu", "other_socket"), Proximity::kSystem);
  EXPECT_EQ(between("gpu", "node_unknown"), Proximity::kNode);
  EXPECT_EQ(between("gpu", "virtual"), Proximity::kNode);
  EXPECT_LT(Proximity::kHostBridge, Proximity::kNode);
  EXPECT_LT(Proximity::kNode, Proximity::kSystem);
}

TEST_F(PciTest, WhatIsNotThereIsNoNearerThanAnythingElse) {
  EXPECT_EQ(between("gpu", "absent"), Proximity::kNode);
  EXPECT_EQ(between("absent", "absent"), Proximity::kNode);
  EXPECT_EQ(numa_node_of(folder("absent")), std::nullopt);
  EXPECT_EQ(numa_node_of(folder("virtual")), std::nullopt);
  EXPECT_EQ(numa_node_of(folder("other_socket")), 1);
}

TEST_F(PciTest, ThreadsAreOnANode) {
  EXPECT_EQ(proximity_to_this_thread(folder("virtual")), Proximity::kNode);
  const std::string far = "far";
  // No host has so many nodes.
  fs::create_directories(folder(far));
  std::ofstream(folder(far) / "numa_node") << 100'000;
  EXPECT_EQ(proximity_to_this_thread(folder(far)), Proximity::kSystem);
}

}  // namespace
}  // namespace dunlin
