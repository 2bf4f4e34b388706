// FakeVerbs: an RDMA device that does not exist. A program that contains fake_verbs.cc
// and fake_verbs_functions.cc has it instead of the host's devices: they define the functions of
// libibverbs.
//
// Its queue pairs are RC, connect ranks that are threads of this process, and carry work requests
// out at once and in order. What a request may do is checked as a device does. Options say what the
// device is like, and what it did can be read afterwards. Connections need
// DUNLIN_VERBS_CONNECT=bootstrap, as librdmacm isn't there. Any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace dunlin::testing {

class FakeVerbs {
 public:
  struct Gid {
    ibv_gid gid{};
    ibv_gid_type type = IBV_GID_TYPE_ROCE_V2;
  };
  struct GpuPlace {
    int gpu;
    std::byte* bytes;
  };
  struct Options {
    std::uint32_t most_inline = 236;  // bytes; more is EINVAL
    bool is_infiniband = true;
    std::uint8_t port_flags = 0;
    std::uint16_t lid = 7;
    std::vector<Gid> gids{};  // empty: one, of the default subnet
    std::vector<std::uint16_t> pkeys = {0xffff};
    bool has_atomics = true;
    bool can_resize = true;              // completion queues
    bool pretends_to_resize = false;     // reports success without any effect
    std::size_t most_pairs = SIZE_MAX;   // queue pairs of all ranks together
    int most_completions = 1 << 20;      // that a queue holds
    std::uint32_t paging = 0;            // for what on-demand paging works (IBV_ODP_SUPPORT_...)
    std::size_t most_locked = SIZE_MAX;  // bytes; a larger region is ENOMEM
    ibv_fork_status fork = IBV_FORK_UNNEEDED;
    // At such a request, a queue pair hangs: it neither carries out that request and later ones nor
    // fails. Called in any thread, with each request to a queue pair that is connected and has not
    // hung.
    std::function<bool(const ibv_send_wr& request)> hangs_at{};
    // Finds GPU memory. Writes there take effect only once something reads memory of that GPU,
    // because the way to a GPU is not that to host memory.
    std::function<std::optional<GpuPlace>(std::uint64_t address, std::size_t size)> gpu_memory{};
  };
  struct Registration {
    std::uint64_t address;
    std::size_t size;
    int access;
  };
  struct Connection {
    ibv_ah_attr route;
    std::uint16_t pkey_index;
  };

  // The device of this process.
  static FakeVerbs& instance();
  // Begins anew with these options. The device must not be in use meanwhile.
  void reset(Options options);
  // Changes options while the device is in use.
  void change(const std::function<void(Options&)>& change);
  // Breaks all connections: requests that are posted from now on fail.
  void break_connections();

  // Ends the registrations of the region that begins there.
  void forget(std::uint64_t address);

  // What the device was asked for, in order:
  std::vector<Connection> connections() const;      // their routes, at each connection
  std::vector<std::uint32_t> inline_sizes() const;  // of those that asked for any
  std::vector<Registration> registrations() const;
  // Whether the region that begins there is registered now.
  bool is_registered(std::uint64_t address) const;
  // How many queue pairs there are now, and the most that one rank has had at a time.
  std::size_t queue_pairs() const;
  std::size_t most_queue_pairs() const;
  // The sizes that completion queues were made with or resized to.
  std::vector<int> queue_sizes() const;
  std::size_t hung_pairs() const;  // how many queue pairs have hung so far
  // Whether a completion queue has had more completions than it holds.
  bool has_overrun() const;
  int fork_calls() const;  // of ibv_fork_init() before memory was registered

  // A GID in text, such as "fe80::1".
  static Gid gid(const char* text, ibv_gid_type type = IBV_GID_TYPE_ROCE_V2);
};

}  // namespace dunlin::testing
