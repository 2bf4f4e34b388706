// In place of the kernels, in a build without nvcc: an image without code, which drivers refuse.
extern "C" const unsigned char dunlin_cnn_kernels[16];
extern "C" const unsigned char dunlin_cnn_kernels[16] = {};
extern "C" const bool dunlin_has_cnn_kernels;
extern "C" const bool dunlin_has_cnn_kernels = false;
