// The list of all kernels of this folder. Their names have "dunlin_cnn_" before. kernels.cu makes
// the kernels of it, and the stand-in for the driver in tests/ its table.
#pragma once

#include "apps/cnn/gpu/layers.h"
#include "apps/cnn/gpu/product.h"

// PRODUCT(name, problem, its arguments, rows of a tile)
#define DUNLIN_CNN_PRODUCTS_OF(PRODUCT, name, problem, arguments) \
  PRODUCT(name##_16, problem, arguments, 16)                      \
  PRODUCT(name##_32, problem, arguments, 32)                      \
  PRODUCT(name##_64, problem, arguments, 64)
#define DUNLIN_CNN_PRODUCTS(PRODUCT)                                                           \
  DUNLIN_CNN_PRODUCTS_OF(PRODUCT, convolution, Convolution, ConvolutionArguments)              \
  DUNLIN_CNN_PRODUCTS_OF(PRODUCT, convolution_input, ConvolutionInput, ConvolutionArguments)   \
  DUNLIN_CNN_PRODUCTS_OF(PRODUCT, convolution_weight, ConvolutionWeight, ConvolutionArguments) \
  DUNLIN_CNN_PRODUCTS_OF(PRODUCT, linear, Linear, LinearArguments)                             \
  DUNLIN_CNN_PRODUCTS_OF(PRODUCT, linear_input, LinearInput, LinearArguments)                  \
  DUNLIN_CNN_PRODUCTS_OF(PRODUCT, linear_weight, LinearWeight, LinearArguments)

// LAYER(name, arguments): layers.h has a function of this name.
#define DUNLIN_CNN_LAYERS(LAYER)                         \
  LAYER(sum_parts, SumArguments)                         \
  LAYER(channel_sum, ChannelSumArguments)                \
  LAYER(batch_norm, BatchNormArguments)                  \
  LAYER(batch_norm_gradient, BatchNormGradientArguments) \
  LAYER(relu, ReluArguments)                             \
  LAYER(relu_gradient, ReluArguments)                    \
  LAYER(max_pool, PoolArguments)                         \
  LAYER(max_pool_gradient, PoolArguments)                \
  LAYER(shortcut, ShortcutArguments)                     \
  LAYER(shortcut_gradient, ShortcutArguments)            \
  LAYER(mean, MeanArguments)                             \
  LAYER(mean_gradient, MeanArguments)                    \
  LAYER(loss, LossArguments)
