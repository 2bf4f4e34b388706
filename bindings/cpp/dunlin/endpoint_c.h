#pragma once

#include "bindings/c/endpoint.h"
