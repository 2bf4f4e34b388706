#pragma once

#include "runtime/status.h"
