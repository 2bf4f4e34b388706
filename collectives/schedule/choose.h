// Chooses an algorithm by rules, for jobs that have no tuning.
#pragma once

#include "collectives/schedule/algorithm.h"

namespace dunlin::collective {

// How the ranks of a problem are connected.
struct Connections {
  // Of ranks whose groups are hosts; the other members have their defaults.
  static Connections among(const Grouping& hosts);

  bool is_all_mapped = false;  // every rank has mapped the memory of all others
  bool is_one_gpu = false;     // as in Shape
  Grid hosts{0, 0};            // as in Shape
  // Some ranks share a host, but the hosts form no grid.
  bool has_uneven_hosts = false;
  // The ranks of a host share a NIC that is as fast as their memory.
  bool shares_fast_nic = false;
  // Messages cost system calls, as they do over tcp: those between hosts, or on one host those
  // between ranks that share no memory. Only all-reduces are chosen by it.
  bool has_costly_messages = false;
};

// `element`: bytes per element.
const Algorithm* choose_algorithm(const Problem& problem, std::size_t element,
                                  const Connections& connections);

}  // namespace dunlin::collective
