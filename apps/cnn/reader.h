// Reads files of labelled images, plain or packed with xz or gzip. What a file is, is told by its
// content, not by its name. Stateless; any thread.
//
//   CIFAR-10 binary   records of 3073 bytes: a label from 0 to 9, then 32 x 32 values of red, of
//                     green, of blue (cs.toronto.edu/~kriz/cifar.html). No header.
//   IDX               as MNIST and Fashion-MNIST have it: big-endian; a file of images (magic
//                     0x00000803: count, rows, columns, then bytes) and one of labels (magic
//                     0x00000801: count, then bytes). One channel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/cnn/images.h"
#include "runtime/status.h"

namespace dunlin::cnn {

// All images of all files, in the files' order. Each IDX file of images goes with the IDX file of
// labels that has the same place among those of labels. kNotFound for a file that isn't there;
// kCorrupted for one that is cut short, too long or neither; kInvalidArgument for files that don't
// go together.
Result<Images> read_images(const std::vector<std::string>& files);

// One file's bytes, for those who have them in memory; `name` is for errors.
struct ImageFile {
  enum class Kind { kBoth, kImages, kLabels };
  Kind kind = Kind::kBoth;
  Images content;  // of kImages without labels, of kLabels without pixels
};
Result<ImageFile> parse_image_file(const std::string& name, std::string_view bytes);

}  // namespace dunlin::cnn
