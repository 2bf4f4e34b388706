#include "tools/dunlin-info/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace dunlin::tools {
namespace {

constexpr std::string_view kBytes = "_bytes";
constexpr int kNameWidth = 30;

std::string size_text(double bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, bytes == std::floor(bytes) ? 0 : 1, kUnits[unit]);
}

std::string value_text(std::string_view name, const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number() && name.ends_with(kBytes)) return size_text(value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// "size_bytes" -> "size"; "is_up" -> "up".
std::string name_text(std::string_view name) {
  if (name.ends_with(kBytes)) name.remove_suffix(kBytes.size());
  if (name.starts_with("is_")) name.remove_prefix(3);
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

bool is_simple(const Json& value) {
  return !value.is_object() && !value.is_array();
}

// "level 1, type Data, size 48 KiB"
std::string in_a_line(const Json& value) {
  if (is_simple(value)) return value_text("", value);
  std::string line;
  for (const auto& [name, member] : value.items()) {
    if (!line.empty()) line += ", ";
    line += fmt::format("{} {}", name_text(name), value_text(name, member));
  }
  return line;
}

void print(std::string& out, const std::string& name, const Json& value, int indent) {
  const std::string label = fmt::format("{:{}}{}", "", indent, name_text(name));
  if (value.is_object() && value.empty()) {
    out += fmt::format("{:<{}} none\n", label, kNameWidth);
  } else if (is_simple(value)) {
    out += fmt::format("{:<{}} {}\n", label, kNameWidth, value_text(name, value));
  } else if (value.is_array()) {
    for (const Json& element : value)
      out += fmt::format("{:<{}} {}\n", label, kNameWidth, in_a_line(element));
  } else {
    out += label + "\n";
    for (const auto& [key, member] : value.items()) print(out, key, member, indent + 2);
  }
}

}  // namespace

std::string to_text(const Json& report) {
  std::string out;
  for (const auto& [section, content] : report.items()) {
    if (!out.empty()) out += "\n";
    print(out, section, content, 0);
  }
  return out;
}

std::string config_text(const Json& config) {
  std::string out;
  for (const auto& [name, entry] : config.items()) {
    const auto text = [&entry = entry](const char* field) {
      return entry[field].get<std::string>();
    };
    const std::string unit = text("unit").empty() ? "" : " " + text("unit");
    out += fmt::format("{}={}{}  ({})\n", name, text("value"), unit,
                       entry["is_set"] ? "set" : "default");
    out += fmt::format(
        "    {}; {}{}\n", text("help"), text("range"),
        entry["is_set"] && !text("default").empty() ? "; default " + text("default") : "");
  }
  return out;
}

}  // namespace dunlin::tools
