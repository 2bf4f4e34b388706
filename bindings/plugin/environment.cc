#include "bindings/plugin/environment.h"

#include <set>
#include <string>

namespace dunlin::plugin {

Environment environment() {
  std::set<std::string, std::less<>> known;
  for (const ConfigEntry& entry : describe(Config(), Environment())) known.insert(entry.name);
  const Environment all = Environment::of_process();
  Environment kept;
  for (const auto& [name, value] : all.values()) {
    if (!name.starts_with("DUNLIN_") || known.contains(name)) kept.set(name, value);
  }
  return kept;
}

}  // namespace dunlin::plugin
