// The sections of dunlin-info's report, as JSON; text.h prints the same for people.
//
// A name that ends in _bytes holds a number of bytes. "remedy" says what to do about what stands
// beside it. What can't be found out is left out.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/clock.h"
#include "runtime/config.h"

namespace dunlin::tools {

using Json = nlohmann::ordered_json;

Json host_report();     // CPU, cores, NUMA nodes, caches
Json memory_report();   // huge pages, shared memory, locked memory
Json kernel_report();   // what Dunlin uses of Linux, and whether it is there
Json network_report();  // interfaces
// RDMA devices and their ports, and the addresses that the verbs transport would use, best first.
// "reason" says why there is none, or why a device or a port is of no use to it.
Json rdma_report(const Config& config);
// GPUs, and which ways RDMA devices have to their memory. "reason" says why there is none.
Json gpu_report(const Config& config);
// Each transport of this build: whether it works here, found by making it and connecting to
// oneself.
Json transport_report(const Config& config, const Clock& clock);
Json waiting_report(const Config& config);  // how waiting threads wait, by ranks on this host
// The tuning file: what was measured for which shape of job, and what follows for collectives.
Result<Json> tuning_report(const Config& config);
Json config_report(const Config& config, const Environment& environment);

}  // namespace dunlin::tools
