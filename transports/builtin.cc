// The backends in this build, and what they reach. No other file includes the headers of all of
// them.
#include <fmt/format.h>

#include "transports/fabric.h"
#include "transports/gpu_access.h"
#include "transports/libraries.h"
#include "transports/shm/transport.h"
#include "transports/tcp/factory.h"

#ifdef DUNLIN_HAVE_UCX
#include "transports/ucx/factory.h"
#endif
#ifdef DUNLIN_HAVE_VERBS
#include "transports/verbs/factory.h"
#endif

namespace dunlin::transport {

namespace {

#if !defined(DUNLIN_HAVE_UCX) || !defined(DUNLIN_HAVE_VERBS)
// A factory in place of a backend that this build does not contain. It reports what was missing.
TransportFactory absent(const char* name, const char* needed) {
  return {name, [needed](const TransportContext&) -> Result<std::unique_ptr<Transport>> {
            return Status(Code::kUnavailable, fmt::format("this build is without {}", needed));
          }};
}
#endif

}  // namespace

std::vector<TransportFactory> builtin_transports() {
  return {
      {"shm", shm::ShmTransport::create},
#ifdef DUNLIN_HAVE_VERBS
      {"verbs", verbs::create_transport},
#else
      absent("verbs", "libibverbs and librdmacm (libibverbs-dev, librdmacm-dev)"),
#endif
      {"tcp", tcp::create_transport},
#ifdef DUNLIN_HAVE_UCX
      {"ucx", ucx::create_transport},
#else
      absent("ucx", "UCX (libucx-dev)"),
#endif
  };
}

void load_libraries() {
  tcp::load_libraries();
}

Status find_gpu_access(const std::string& name, [[maybe_unused]] const std::string& device,
                       [[maybe_unused]] Config& config, [[maybe_unused]] const GpuDriver& driver) {
  if (name == "shm") return Status::ok();
#ifdef DUNLIN_HAVE_VERBS
  if (name == "verbs") return verbs::find_gpu_access(device, config, driver);
#endif
  return {Code::kUnavailable, fmt::format("{} reaches host memory only", name)};
}

}  // namespace dunlin::transport
