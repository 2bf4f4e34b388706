"""embed.py FATBIN OUTPUT NAME: writes a C++ file that contains the bytes of FATBIN as dunlin_NAME_kernels."""
import pathlib
import sys

fatbin = pathlib.Path(sys.argv[1]).resolve()
name = sys.argv[3]
pathlib.Path(sys.argv[2]).write_text(f'''asm(R"(
.section .rodata
.balign 64
.global dunlin_{name}_kernels
.hidden dunlin_{name}_kernels
dunlin_{name}_kernels:
.incbin "{fatbin}"
.previous
)");
extern "C" const bool dunlin_has_{name}_kernels;
extern "C" const bool dunlin_has_{name}_kernels = true;
''')
