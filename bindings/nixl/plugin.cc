// The entry points of the plugin, by which NIXL finds the backend.
#include "backend/backend_plugin.h"
#include "bindings/nixl/engine.h"
#include "runtime/version.h"

extern "C" {

NIXL_PLUGIN_EXPORT nixlBackendPlugin* nixl_plugin_init() {
  static const std::string version(dunlin::version());
  return nixlBackendPluginCreator<dunlin::nixl::Engine>::create(
      NIXL_PLUGIN_API_VERSION, "DUNLIN", version.c_str(), dunlin::nixl::Engine::options(),
      dunlin::nixl::Engine::memory_types());
}

NIXL_PLUGIN_EXPORT void nixl_plugin_fini() {}
}
