// The one place that names all backends.
#include "transports/fabric.h"
#include "transports/shm/transport.h"

#ifdef DUNLIN_HAVE_UCX
#include "transports/ucx/factory.h"
#endif

namespace dunlin::transport {

std::vector<TransportFactory> builtin_transports() {
  return {
      {"shm", shm::ShmTransport::create},
#ifdef DUNLIN_HAVE_UCX
      {"ucx", ucx::create_transport},
#else
      {"ucx",
       [](const TransportContext&) -> Result<std::unique_ptr<Transport>> {
         return Status(Code::kUnavailable, "this build is without UCX (libucx-dev)");
       }},
#endif
  };
}

}  // namespace dunlin::transport
