// What fake_verbs.cc and fake_verbs_functions.cc share: the objects of the device that does not
// exist, and what it knows of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "tests/support/fake_verbs.h"

namespace dunlin::testing::fake_verbs {

struct Queue : ibv_cq {
  std::deque<ibv_wc> completions;
  bool is_armed = false;
};

struct Channel : ibv_comp_channel {
  std::deque<ibv_cq*> announced;
};

struct Pair : ibv_qp {
  ibv_qp_cap cap{};
  std::uint32_t peer = 0;
  std::uint16_t pkey_index = 0;
  std::uint8_t timeout = 0;
  std::uint8_t retries = 0;
  std::deque<std::uint64_t> receives;  // their numbers
  bool is_broken = false;
  bool has_hung = false;
};

struct Region : ibv_mr {
  int access = 0;
};

struct HeldWrite {
  std::byte* to;
  std::vector<std::byte> bytes;
};

// Everything that the device knows. Guarded by its mutex.
struct State {
  mutable std::recursive_mutex mutex;
  FakeVerbs::Options options;
  std::map<std::uint32_t, Pair*> pairs;
  std::map<std::uint32_t, Region*> regions;    // by key
  std::map<int, std::vector<HeldWrite>> held;  // by GPU
  std::uint32_t last_pair = 0x100;
  std::uint32_t last_key = 0x1000;
  std::vector<FakeVerbs::Connection> connections;
  std::vector<std::uint32_t> inline_sizes;
  std::vector<FakeVerbs::Registration> registrations;
  std::size_t most_pairs = 0;  // of one context
  std::vector<int> queue_sizes;
  bool has_overrun = false;
  std::size_t hung_pairs = 0;
  int fork_calls = 0;
  ibv_device device{};
  ibv_device* devices[2] = {&device, nullptr};
};

State& state();
using Guard = std::lock_guard<std::recursive_mutex>;

// Puts the queue pair into its error state.
void break_pair(Pair& pair);
ibv_mr* register_memory(ibv_pd* domain, void* address, std::size_t size, unsigned access);

// The operations that verbs.h calls through pointers.
int post_send(ibv_qp* queue_pair, ibv_send_wr* request, ibv_send_wr** bad);
int post_receive(ibv_qp* queue_pair, ibv_recv_wr* request, ibv_recv_wr** bad);
int poll_queue(ibv_cq* which, int count, ibv_wc* completions);
int arm_queue(ibv_cq* which, int solicited_only);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* found, std::size_t size);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* found, std::size_t size);

}  // namespace dunlin::testing::fake_verbs
