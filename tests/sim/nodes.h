// Nodes on a simulated network, for the tests of that network.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "transports/sim/node.h"

namespace dunlin::testing {

// Options with round numbers.
inline transport::sim::Options plain(int ranks) {
  transport::sim::Options options;
  options.ranks = ranks;
  options.rack = {std::chrono::microseconds(2), 10e9};  // 10 bytes in a nanosecond
  options.host = {std::chrono::nanoseconds(300), 20e9};
  options.spine = {std::chrono::microseconds(5), 5e9};
  return options;
}

inline transport::Notification to_cell(std::uint32_t cell, std::uint64_t sequence) {
  transport::Notification notification;
  notification.id = transport::NotifyId(cell);
  notification.sequence = sequence;
  return notification;
}

// Records when each sequence number arrives in cell 0.
class Watcher final : public transport::sim::Actor {
 public:
  explicit Watcher(transport::sim::Node& node) : node_(node) { node.set_actor(this); }

  void advance() override {
    ++turns;
    const std::uint64_t sequence = node_.board().sequence(transport::NotifyId(0));
    if (sequence == seen) return;
    seen = sequence;
    times.push_back(node_.clock().now().time_since_epoch());
  }

  int turns = 0;
  std::uint64_t seen = 0;
  std::vector<Duration> times;

 private:
  transport::sim::Node& node_;
};

// Nodes with a region each, which others import on first use.
class World {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;

  explicit World(transport::sim::Options options, bool is_phantom = false)
      : network_(transport::sim::Network::create(std::move(options)).value()) {
    for (int rank = 0; rank < network_->options().ranks; ++rank) {
      nodes_.push_back(transport::sim::Node::create(*network_, Rank(rank), 8).value());
      regions_.push_back(
          is_phantom ? nodes_.back()->allocate_phantom(kBytes).value()
                     : nodes_.back()->register_memory(MemoryRegion::allocate(kBytes).value()));
    }
  }

  transport::sim::Network& network() { return *network_; }
  transport::sim::Node& node(int rank) { return *nodes_[static_cast<std::size_t>(rank)]; }
  transport::LocalRegion& region(int rank) { return *regions_[static_cast<std::size_t>(rank)]; }
  transport::Lane& data(int from, int to) { return node(from).link(Rank(to)).value()->data(); }
  transport::Lane& control(int from, int to) {
    return node(from).link(Rank(to)).value()->control();
  }
  transport::RemoteRegion& remote(int from, int to) {
    remotes_.push_back(node(from).import_region(Rank(to), region(to)).value());
    return *remotes_.back();
  }
  // Puts the beginning of one region over that of another, with a notification to cell 0.
  Status send(int from, int to, std::size_t size, std::uint64_t sequence,
              transport::Completion* completion = nullptr) {
    return data(from, to).put_notify(region(from).slice(0, size).value(),
                                     remote(from, to).slice(0, size).value(), to_cell(0, sequence),
                                     completion);
  }
  Duration now() const { return network_->now().time_since_epoch(); }

 private:
  std::unique_ptr<transport::sim::Network> network_;
  std::vector<std::unique_ptr<transport::sim::Node>> nodes_;
  std::vector<std::unique_ptr<transport::LocalRegion>> regions_;
  std::vector<std::unique_ptr<transport::RemoteRegion>> remotes_;
};

}  // namespace dunlin::testing
