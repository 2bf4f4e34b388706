#pragma once

#include "bindings/c/dunlin.h"
