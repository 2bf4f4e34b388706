// LocalPort: a port that queue pairs of this process use, with the addresses that it has at
// present.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "runtime/status.h"

namespace dunlin::transport::verbs {

struct LocalPort {
  // These say which port and which entries of its tables are meant:
  std::uint8_t number = 1;
  std::string
      partition{};  // DUNLIN_VERBS_PKEY: 0x... is a P_Key, a number is an index; empty: the first

  // read() fills these:
  std::uint8_t gid_index = 0;  // before the first read(): the GID that is wanted
  ibv_gid gid{};               // all zero before the first read()
  std::uint16_t lid = 0;
  std::uint16_t pkey_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  bool is_infiniband = false;
  bool needs_grh = false;             // every packet has to have a global route header
  std::uint64_t longest_message = 0;  // bytes

  // Reads what the port has now. LID, GID and their places may change while it is down. A GID that
  // has moved in its table is found again; one that is gone is replaced by what has its place now.
  // After an error nothing has changed.
  Status read(ibv_context* device);
  // The high half of the GID: the same on all ports of an InfiniBand subnet. 0 on Ethernet.
  std::uint64_t subnet() const;
};

}  // namespace dunlin::transport::verbs
