#include "transports/verbs/device/local_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

namespace dunlin::transport::verbs {
namespace {

bool is_zero(const ibv_gid& gid) {
  return std::ranges::all_of(gid.raw, [](std::uint8_t byte) { return byte == 0; });
}

std::optional<ibv_gid_entry> entry_of(ibv_context* device, std::uint8_t port, int index) {
  ibv_gid_entry entry{};
  if (ibv_query_gid_ex(device, port, static_cast<std::uint32_t>(index), &entry, 0) != 0 ||
      is_zero(entry.gid))
    return std::nullopt;
  return entry;
}

// The GID of a port whose table has `places` entries.
Status read_gid(ibv_context* device, int places, LocalPort& port) {
  const auto present = entry_of(device, port.number, port.gid_index);
  const auto is_same = [&](const ibv_gid_entry& entry) {
    return std::memcmp(entry.gid.raw, port.gid.raw, sizeof port.gid.raw) == 0;
  };
  if (!is_zero(port.gid) && !(present && is_same(*present))) {
    for (int index = 0; index < places; ++index) {
      const auto entry = entry_of(device, port.number, index);
      if (!entry || !is_same(*entry) || entry->gid_type == IBV_GID_TYPE_ROCE_V1) continue;
      port.gid_index = static_cast<std::uint8_t>(index);
      return Status::ok();
    }
  }
  if (!present) {
    return {Code::kUnavailable,
            fmt::format("port {} has no GID with index {}", port.number, port.gid_index)};
  }
  port.gid = present->gid;
  return Status::ok();
}

std::optional<unsigned> number_of(std::string_view text, int base) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The place of the wanted partition in a table with `places` entries.
Result<std::uint16_t> find_partition(ibv_context* device, int places, const LocalPort& port) {
  constexpr unsigned kNumber = 0x7fff;  // the other bit tells full members from limited ones
  const std::string_view wanted = port.partition;
  if (wanted.empty()) return std::uint16_t{0};
  const bool is_key = wanted.starts_with("0x");
  const auto number = is_key ? number_of(wanted.substr(2), 16) : number_of(wanted, 10);
  if (!number || *number > 0xffff) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("DUNLIN_VERBS_PKEY={}: give a P_Key, such as 0x8001, or an index", wanted));
  }
  std::optional<std::uint16_t> found;
  unsigned best = 0;
  for (int index = 0; index < places; ++index) {
    __be16 raw = 0;
    if (ibv_query_pkey(device, port.number, index, &raw) != 0) continue;
    const unsigned key = ntohs(raw);
    const bool is_wanted =
        is_key ? (key & kNumber) == (*number & kNumber) : static_cast<unsigned>(index) == *number;
    if (!is_wanted || (key & kNumber) == 0 || key <= best) continue;  // a full member is greater
    found = static_cast<std::uint16_t>(index);
    best = key;
  }
  if (found) return *found;
  return Status(Code::kUnavailable,
                fmt::format("DUNLIN_VERBS_PKEY={}: port {} belongs to no such partition", wanted,
                            port.number));
}

}  // namespace

Status LocalPort::read(ibv_context* device) {
  ibv_port_attr attributes{};
  if (const int error = ibv_query_port(device, number, &attributes); error != 0)
    return Status::from_errno("ibv_query_port", error);
  LocalPort now = *this;
  now.lid = attributes.lid;
  now.mtu = attributes.active_mtu;
  now.is_infiniband = attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
  now.needs_grh = (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  now.longest_message = attributes.max_msg_sz;
  DUNLIN_TRY(read_gid(device, attributes.gid_tbl_len, now));
  DUNLIN_ASSIGN(now.pkey_index, find_partition(device, attributes.pkey_tbl_len, now));
  *this = std::move(now);
  return Status::ok();
}

std::uint64_t LocalPort::subnet() const {
  if (!is_infiniband) return 0;
  std::uint64_t prefix = 0;
  std::memcpy(&prefix, gid.raw, sizeof prefix);
  return prefix;
}

}  // namespace dunlin::transport::verbs
