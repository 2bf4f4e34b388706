"""embed.py FATBIN OUTPUT: writes a C++ file that contains the bytes of FATBIN (gpu_kernels.cc)."""
import pathlib
import sys

fatbin = pathlib.Path(sys.argv[1]).resolve()
pathlib.Path(sys.argv[2]).write_text(f'''asm(R"(
.section .rodata
.balign 64
.global dunlin_gpu_kernels
.hidden dunlin_gpu_kernels
dunlin_gpu_kernels:
.incbin "{fatbin}"
.previous
)");
extern "C" const bool dunlin_has_gpu_kernels;
extern "C" const bool dunlin_has_gpu_kernels = true;
''')
