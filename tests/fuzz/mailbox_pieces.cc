// The pieces in which messages of mailboxes arrive, in notification cells that a peer writes
// (collectives/groups/pieces.h). Pieces that are accepted are those that the sender makes of the
// messages that come of them.
#include "collectives/groups/pieces.h"

#include <algorithm>
#include <deque>

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace collective::groups;
using transport::kInlineBytes;
using transport::NotifyCell;

// What a piece is in the input: a tag, the bytes that are left, the size, and the bytes.
constexpr std::size_t kMostPieces = 4096;

void check(Input input) {
  PieceAssembly assembly;
  std::deque<Piece> taken;
  while (!input.rest().empty() && taken.size() < kMostPieces) {
    NotifyCell cell{};
    cell.tag = input.take<std::uint8_t>();
    cell.length = input.take<std::uint32_t>();
    cell.inline_size = input.take<std::uint8_t>();
    const auto bytes = input.take_bytes(std::min<std::size_t>(cell.inline_size, kInlineBytes));
    if (!bytes.empty()) std::memcpy(cell.inline_data, bytes.data(), bytes.size());
    const auto message = assembly.add(cell);
    if (!message) return;
    FUZZ_CHECK(cell.inline_size <= kInlineBytes && cell.length <= kLongestMessage);
    Piece& piece = taken.emplace_back();
    piece.tag = cell.tag;
    piece.left = cell.length;
    piece.size = cell.inline_size;
    std::memcpy(piece.data, cell.inline_data, piece.size);
    if (!*message) continue;
    std::deque<Piece> made;
    cut(**message, made);
    FUZZ_CHECK(made.size() == taken.size());
    for (std::size_t i = 0; i < made.size(); ++i) {
      FUZZ_CHECK(made[i].tag == taken[i].tag && made[i].left == taken[i].left);
      FUZZ_CHECK(equal({made[i].data, made[i].size}, {taken[i].data, taken[i].size}));
    }
    taken.clear();
  }
}

void append(Bytes& bytes, const MailboxMessage& message) {
  std::deque<Piece> pieces;
  cut(message, pieces);
  for (const Piece& piece : pieces) {
    const Bytes header = ByteWriter()
                             .number(static_cast<std::uint8_t>(piece.tag))
                             .number(piece.left)
                             .number(piece.size)
                             .take();
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.insert(bytes.end(), piece.data, piece.data + piece.size);
  }
}

}  // namespace

std::vector<Seed> seeds() {
  Bytes one;
  append(one, {3, Bytes(12, std::byte{4})});
  Bytes several;
  append(several, {3, {}});
  append(several, {4, Bytes(100, std::byte{5})});
  append(several, {5, Bytes(kInlineBytes, std::byte{6})});
  return {{"one", one}, {"several", several}};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(dunlin::fuzz::Input(data, size));
  return 0;
}
