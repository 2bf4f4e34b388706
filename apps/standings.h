// share_standings: the members of a new epoch tell one another how far they are, so that all of
// them go on from the same point, those that have just joined the job too. What a standing has is
// the program's.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transports/fabric.h"

namespace dunlin {

// Collective over the members, once in an epoch and for a topic. Returns their standings in the
// order of the members. kPeerDead when one of them dies meanwhile. A Standing has encode() and a
// static decode(), and as many bytes on all members.
template <typename Standing>
Result<std::vector<Standing>> share_standings(transport::Fabric& fabric, const std::string& topic,
                                              const Membership& membership, const Standing& own,
                                              Duration timeout) {
  const Bytes record = own.encode();
  DUNLIN_ASSIGN(const Bytes records,
                fabric.bootstrap().gather(topic + "/" + std::to_string(membership.epoch),
                                          membership.members, record, timeout));
  std::vector<Standing> all;
  for (std::size_t i = 0; i < membership.members.size(); ++i) {
    const auto part = std::span<const std::byte>(records).subspan(i * record.size(), record.size());
    Result<Standing> standing = Standing::decode(part);
    if (!standing) return std::move(standing).status().with_peer(membership.members[i]);
    all.push_back(*std::move(standing));
  }
  return all;
}

}  // namespace dunlin
