// Where a listener is: as the command lines of both sides write it.
#pragma once

#include <string_view>

#include "runtime/bootstrap/net.h"

namespace dunlin::perf {

// [[ADDR:]PORT]; nothing: the default port of all interfaces. Port 0: a free one.
Result<bootstrap::Endpoint> parse_listen(std::string_view text);
// HOST[:PORT]; an IPv6 address stands in brackets.
Result<bootstrap::Endpoint> parse_connect(std::string_view text);

}  // namespace dunlin::perf
