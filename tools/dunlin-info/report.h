// The sections of dunlin-info's report, as JSON. text.h turns them into text for people.
//
// A name that ends in _bytes holds a number of bytes. "reason" says why something cannot be used,
// and "remedy" what to do about it. What cannot be found out is left out.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/clock.h"
#include "runtime/config.h"

namespace dunlin::tools {

using Json = nlohmann::ordered_json;

// Version, compiler, transports and optional parts of this build.
Json build_report();
Json host_report();     // CPU, cores, NUMA nodes, caches
Json memory_report();   // huge pages, shared memory, locked memory
Json kernel_report();   // the features of Linux that Dunlin uses, and whether they are there
Json network_report();  // network interfaces
// RDMA devices and their ports, and the addresses that the verbs transport would use, best first.
// "reason" says why there is none, or why the transport cannot use a device or a port.
Json rdma_report(const Config& config);
// GPUs, and how RDMA devices can access their memory. "reason" says why there is none.
Json gpu_report(const Config& config);
// Whether each transport of this build works here. Each is created, and the rank connects to
// itself.
Json transport_report(const Config& config, const Clock& clock);
// The namespaces of this process, and with which ranks in other PID namespaces (containers) of this
// host it can share memory. "reason" says why it cannot.
Json container_report(const Config& config);
Json waiting_report(const Config& config);  // how threads wait, by number of ranks on this host
// The tuning file: what was measured for each shape of job, and which algorithms follow from it.
Result<Json> tuning_report(const Config& config);
Json config_report(const Config& config, const Environment& environment);

}  // namespace dunlin::tools
