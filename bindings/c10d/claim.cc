#include "bindings/c10d/claim.h"

#include "runtime/bytes.h"

namespace dunlin::torch_backend {

std::string Claim::encode() const {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(standing))
      .text(job)
      .number(static_cast<std::int32_t>(rank))
      .text(host)
      .text(token);
  const Bytes bytes = writer.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<Claim> Claim::decode(std::string_view text) {
  ByteReader reader(as_bytes(text));
  Claim claim;
  const auto standing = reader.number<std::uint8_t>();
  claim.job = reader.text();
  claim.rank = reader.number<std::int32_t>();
  claim.host = reader.text();
  claim.token = reader.text();
  if (!reader.at_end() || standing > static_cast<std::uint8_t>(Standing::kRunning) ||
      claim.rank < 0)
    return Status(Code::kCorrupted, "the store's value is not the one that Dunlin has put there");
  claim.standing = static_cast<Standing>(standing);
  return claim;
}

}  // namespace dunlin::torch_backend
