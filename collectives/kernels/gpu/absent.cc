// In place of the kernels, in a build without nvcc: an image without code, which drivers refuse.
extern "C" const unsigned char dunlin_gpu_kernels[16];
extern "C" const unsigned char dunlin_gpu_kernels[16] = {};
extern "C" const bool dunlin_has_gpu_kernels;
extern "C" const bool dunlin_has_gpu_kernels = false;
