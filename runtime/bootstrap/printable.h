// Text from outside, such as the network, on its way to a log, a terminal or an error message.
#pragma once

#include <string>
#include <string_view>

namespace dunlin::bootstrap {

// The text with every byte outside printable ASCII as "\xHH". So a terminal takes nothing in it for
// a command, and one message stays one line.
std::string printable(std::string_view text);

}  // namespace dunlin::bootstrap
