// Text for SVG.
#pragma once

#include <string>
#include <string_view>

namespace dunlin {

// Escapes the text for use as the content of an element.
inline std::string escape_xml(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    switch (letter) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      default:
        result += letter;
    }
  }
  return result;
}

}  // namespace dunlin
