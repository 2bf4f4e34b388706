// Architecture: a network as data. It lists the layers in the order in which they compute, and
// where their parameters lie in the flat vector that workers exchange.
//
// Parameters lie in the order of their layers. Backward propagation reaches the last layer first,
// so that the part that is ready to be sent grows from the end of the vector, where methods
// (collectives/training/) begin to send. Plain data; any thread.
//
//   small      two convolutions of 16 and 32 channels: for tests
//   vgg-11,    Simonyan and Zisserman, configurations A and D, for 32 x 32 pixels: a single fully
//   vgg-16     connected layer behind the convolutions, 9.2 and 14.7 million parameters
//   resnet-20  He et al., section 4.2 with n = 3: shortcuts without parameters, batch
//              normalization; 0.27 million parameters
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/status.h"

namespace dunlin::cnn {

enum class NetworkKind : std::uint8_t { kSmall, kVgg11, kVgg16, kResnet20 };
inline constexpr NetworkKind kNetworkKinds[] = {NetworkKind::kSmall, NetworkKind::kVgg11,
                                                NetworkKind::kVgg16, NetworkKind::kResnet20};
const char* to_string(NetworkKind kind);
Result<NetworkKind> parse_network(std::string_view name);  // "small", "vgg-11", ...

struct Parameter {
  std::vector<std::int64_t> shape;
  std::size_t first = 0;  // place in the flat vector
  std::size_t count = 0;
  std::size_t segment = 0;
  float mean = 0;  // of the initial values
  float deviation = 0;
};

// The parameters of a layer, with those of the normalization behind it.
struct Segment {
  std::size_t first = 0;
  std::size_t count = 0;
};

struct Layer {
  enum class Kind : std::uint8_t {
    kConvolution,  // 3 x 3, padded by 1
    kBatchNorm,
    kRelu,
    kMaxPool,        // 2 x 2
    kShortcutBegin,  // keeps the input
    kShortcutEnd,    // adds every stride-th pixel of what was kept, with zeros as new channels
    kMean,           // over all pixels of a channel
    kLinear,         // fully connected
  };
  Kind kind = Kind::kRelu;
  int stride = 1;
  int channels = 0;                   // of the output
  std::optional<std::size_t> weight;  // indices of parameters
  std::optional<std::size_t> bias;
  std::size_t statistics = 0;  // of batch normalization: where its running mean lies, and behind it
                               // its running variance
};

struct Architecture {
  NetworkKind kind = NetworkKind::kSmall;
  int channels = 3;
  int classes = 10;
  std::vector<Layer> layers;
  std::vector<Parameter> parameters;
  std::vector<Segment> segments;  // adjacent, from the vector's beginning to its end
  std::size_t count = 0;          // elements of the flat vector
  std::size_t statistics = 0;     // running means and variances, all together

  // Appends an empty segment.
  void begin_segment() { segments.push_back({count, 0}); }
  // Appends a parameter to the last segment, and returns its index.
  std::size_t add_parameter(std::vector<std::int64_t> shape, double mean, double deviation);
};

// For images of 32 x 32 pixels. ResNets always have batch normalization. Convolutions in front of a
// batch normalization have no bias.
Architecture make_architecture(NetworkKind kind, int channels, int classes, bool has_batch_norm);

// Draws initial parameters after He et al. (Delving Deep into Rectifiers, section 2.2). They depend
// on the seed alone. `flat` has architecture.count elements.
void initialize(const Architecture& architecture, std::uint64_t seed, std::span<float> flat);
// The initial running statistics: means 0, variances 1.
std::vector<float> initial_statistics(const Architecture& architecture);

}  // namespace dunlin::cnn
