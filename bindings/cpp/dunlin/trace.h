#pragma once

#include "runtime/trace.h"
