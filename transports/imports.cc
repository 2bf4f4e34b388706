#include "transports/imports.h"

namespace dunlin::transport {

ImportedRegion::ImportedRegion(const Link& link, Imports& imports, std::uint64_t id,
                               std::size_t size)
    : RemoteRegion(link, size),
      imports_(imports),
      id_(id),
      is_revoked_(imports.revoked_.contains(id)) {
  imports_.regions_.push_back(this);
}

ImportedRegion::~ImportedRegion() {
  std::erase(imports_.regions_, this);
}

void Imports::revoke(std::uint64_t id) {
  revoked_.insert(id);
  for (ImportedRegion* const region : regions_) {
    if (region->id_ == id) region->is_revoked_ = true;
  }
}

Status check_import(const Link& link, const RemoteSlice& remote) {
  if (!static_cast<const ImportedRegion*>(remote.region())->is_revoked()) return Status::ok();
  return Status(Code::kNotFound, "the peer has deregistered the region").with_peer(link.peer());
}

Status check_transfer_with_import(const Link& link, const LocalSlice& local,
                                  const RemoteSlice& remote) {
  DUNLIN_TRY(check_transfer(link, local, remote));
  return local.size() == 0 ? Status::ok() : check_import(link, remote);
}

}  // namespace dunlin::transport
