// Reads the address of a listener from the command lines of both sides.
#pragma once

#include <string_view>

#include "runtime/bootstrap/net.h"

namespace dunlin::perf {

// Reads [[ADDR:]PORT]. Empty: the default port of all interfaces; port 0: any free one.
Result<bootstrap::Endpoint> parse_listen(std::string_view text);
// Reads HOST[:PORT]. An IPv6 address stands in brackets.
Result<bootstrap::Endpoint> parse_connect(std::string_view text);

}  // namespace dunlin::perf
