#include "tools/dunlin-perf/options/endpoints.h"

#include <fmt/format.h>

#include "runtime/config.h"
#include "tools/dunlin-perf/options/options.h"

namespace dunlin::perf {

using bootstrap::Endpoint;

Result<Endpoint> parse_listen(std::string_view text) {
  if (text.empty()) return Endpoint{"", kDefaultPort};
  if (text.find(':') != std::string_view::npos) return Endpoint::parse(text);
  const auto port = parse_integer(text);
  if (port && *port >= 0 && *port <= 65535) return Endpoint{"", static_cast<std::uint16_t>(*port)};
  return Status(Code::kInvalidArgument, fmt::format("'{}' is neither PORT nor ADDR:PORT", text));
}

Result<Endpoint> parse_connect(std::string_view text) {
  const bool has_port = text.find(':') != std::string_view::npos && !text.ends_with(']');
  auto endpoint =
      Endpoint::parse(has_port ? std::string(text) : fmt::format("{}:{}", text, kDefaultPort));
  if (endpoint && endpoint->port == 0) {
    return Status(Code::kInvalidArgument, fmt::format("'{}': port 0 cannot be connected to", text));
  }
  return endpoint;
}

}  // namespace dunlin::perf
