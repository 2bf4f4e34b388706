// Signatures of calls: equal for equal calls, different if one thing differs that members must
// agree on.
#include <gtest/gtest.h>

#include <set>

#include "collectives/communicator/signature.h"

namespace dunlin::collective {
namespace {

const Algorithm* algorithm(Collective collective, const char* name) {
  return find_algorithm(collective, name).value();
}

CallTerms all_reduce() {
  CallTerms terms;
  terms.problem = {Collective::kAllReduce, 4, 1000};
  terms.algorithm = algorithm(Collective::kAllReduce, "ring");
  terms.slice = 1000;
  return terms;
}

TEST(SignatureTest, DiffersWithEachTerm) {
  Window window;
  window.id = 1;
  Window other;
  other.id = 2;
  std::vector<CallTerms> all(1, all_reduce());
  const auto add = [&](auto&& change) { change(all.emplace_back(all_reduce())); };
  for (const std::size_t count : {1UL, 999UL, 1001UL, 2000UL, 1UL << 40})
    add([&](CallTerms& terms) { terms.problem.count = count; });
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAverage})
    add([&](CallTerms& terms) { terms.reduction.op = op; });
  for (const DataType type : {DataType::kInt8, DataType::kInt32, DataType::kFloat16,
                              DataType::kBfloat16, DataType::kFloat64})
    add([&](CallTerms& terms) { terms.reduction.type = type; });
  add([](CallTerms& terms) { terms.algorithm = algorithm(Collective::kAllReduce, "direct"); });
  add([](CallTerms& terms) { terms.slice = 500; });
  add([](CallTerms& terms) { terms.empty_calls = 1; });
  add([](CallTerms& terms) { terms.name = "a"; });
  add([](CallTerms& terms) { terms.name = "b"; });
  for (const std::size_t offset : {0UL, 4UL, 1UL << 33}) {
    add([&](CallTerms& terms) { terms.input = {&window, offset, 0}; });
    add([&](CallTerms& terms) { terms.output = {&window, offset, 0}; });
    add([&](CallTerms& terms) { terms.input = {&other, offset, 0}; });
    add([&](CallTerms& terms) { terms.input = {&window, offset, 8}; });
  }
  std::set<std::uint64_t> signatures;
  for (const CallTerms& terms : all) {
    EXPECT_EQ(signature_of(terms), signature_of(CallTerms(terms)));
    EXPECT_TRUE(signatures.insert(signature_of(terms)).second) << describe(terms);
  }
}

TEST(SignatureTest, LeavesOutWhatMayDiffer) {
  Window window;
  CallTerms reduce = all_reduce();
  reduce.problem.collective = Collective::kReduce;
  reduce.algorithm = algorithm(Collective::kReduce, "tree");
  CallTerms root = reduce;
  root.output = {&window, 64, 0};
  EXPECT_EQ(signature_of(reduce), signature_of(root)) << "only the root of a reduce has an output";
  reduce.algorithm = root.algorithm = algorithm(Collective::kReduce, "shared");
  EXPECT_NE(signature_of(reduce), signature_of(root)) << "members write to the root's output";
  reduce.is_one_gpu = root.is_one_gpu = true;
  EXPECT_EQ(signature_of(reduce), signature_of(root)) << "the root works alone";
  root.input = {&window, 64, 0};
  EXPECT_NE(signature_of(reduce), signature_of(root)) << "it reads peers' inputs at its own place";

  CallTerms broadcast = all_reduce();
  broadcast.problem.collective = Collective::kBroadcast;
  broadcast.algorithm = algorithm(Collective::kBroadcast, "tree");
  CallTerms other = broadcast;
  other.input = {&window, 64, 0};
  EXPECT_EQ(signature_of(broadcast), signature_of(other)) << "only the root's input is read";
  broadcast.algorithm = other.algorithm = algorithm(Collective::kBroadcast, "shared");
  EXPECT_NE(signature_of(broadcast), signature_of(other)) << "members read the root's input";
  broadcast.is_one_gpu = other.is_one_gpu = true;
  EXPECT_EQ(signature_of(broadcast), signature_of(other)) << "the root works alone";
  broadcast.algorithm = other.algorithm = algorithm(Collective::kBroadcast, "tree");
  other.reduction.op = ReduceOp::kMax;
  EXPECT_EQ(signature_of(broadcast), signature_of(other)) << "a broadcast has no operator";
  other.output = {&window, 64, 0};
  EXPECT_NE(signature_of(broadcast), signature_of(other)) << "parents write to outputs";
}

TEST(SignatureTest, NamesTheCall) {
  CallTerms terms = all_reduce();
  EXPECT_EQ(describe(terms), "all-reduce 'ring' of 1000 float32 (sum)");
  EXPECT_EQ(describe_signature(signature_of(terms)), "all-reduce 'ring' of float32 (sum)");
  for (const Algorithm& each : algorithms()) {
    terms.problem.collective = each.collective;
    terms.algorithm = &each;
    const std::string text = describe_signature(signature_of(terms));
    EXPECT_NE(text.find(to_string(each.collective)), text.npos) << text;
    EXPECT_NE(text.find(each.name), text.npos) << text;
  }
  // What a member of another version, or anything else, may send.
  for (const std::uint64_t signature : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{42}})
    EXPECT_EQ(describe_signature(signature), "something else");
}

}  // namespace
}  // namespace dunlin::collective
