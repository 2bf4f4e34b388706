// Reads files of labeled images, plain or packed with xz or gzip. The content of a file decides
// what it is, not its name. Stateless; any thread.
//
//  CIFAR-10 binary   records of 3073 bytes: a label from 0 to 9, then 32 x 32 values of red, of
//                    green, of blue (cs.toronto.edu/~kriz/cifar.html). No header.
//  IDX               as MNIST and Fashion-MNIST have it: big-endian; a file of images (magic
//                    0x00000803: count, rows, columns, then bytes) and one of labels (magic
//                    0x00000801: count, then bytes). One channel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/cnn/images.h"
#include "runtime/status.h"

namespace dunlin::cnn {

// Reads all images of all files, in the order of the files. The n-th IDX file of images belongs to
// the n-th IDX file of labels. kNotFound for a file that does not exist; kCorrupted for a file that
// is cut short, is too long or has neither format; kInvalidArgument for files that do not belong
// together.
Result<Images> read_images(const std::vector<std::string>& files);

// The same for the bytes of one file; `name` is for error messages.
struct ImageFile {
  enum class Kind { kBoth, kImages, kLabels };
  Kind kind = Kind::kBoth;
  Images content;  // kImages has no labels, kLabels has no pixels
};
Result<ImageFile> parse_image_file(const std::string& name, std::string_view bytes);

}  // namespace dunlin::cnn
