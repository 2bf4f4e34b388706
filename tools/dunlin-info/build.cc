#include <fmt/format.h>

#include "build_parts.h"
#include "runtime/version.h"
#include "tools/dunlin-info/report.h"
#include "transports/fabric.h"

namespace dunlin::tools {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

Json build_report() {
  Json json;
  json["version"] = version();
  json["compiler"] = compiler();
  json["optimization"] = kBuildOptimization;
  json["assertions"] = kBuildHasAssertions;
  json["optional_parts"] = Json::object();
  for (const BuildPart& part : kBuildParts) json["optional_parts"][part.name] = part.is_present;
  // builtin_transports() has a factory for each absent one, too: it says what was missing.
  json["transports"] = Json::array();
  for (const auto& factory : transport::builtin_transports())
    if (json["optional_parts"].value(factory.name, true))
      json["transports"].push_back(factory.name);
  return json;
}

}  // namespace dunlin::tools
