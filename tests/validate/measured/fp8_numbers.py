"""PyTorch's torch.float8_e4m3fn and torch.float8_e5m2, which fp8_test.cpp holds validate/networks/fp8.h against.
Prints the number of each code, then a checksum of the codes of a million floats from all exponents: a block a number.

Run with PyTorch (made with 2.6.0):
    python3 tests/validate/measured/fp8_numbers.py
"""
import zlib

import numpy
import torch

BLOCKS, BLOCK = 16, 1 << 16


def main():
    print("// torch", torch.__version__)
    floats = (numpy.arange(BLOCKS * BLOCK, dtype=numpy.uint64) * 2654435761 % (1 << 32)).astype(numpy.uint32).view(numpy.float32)
    for dtype in torch.float8_e4m3fn, torch.float8_e5m2:
        codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
        print("// of codes 0 to 127,", dtype)
        print(", ".join(f"0x{bits:08X}" for bits in codes.float()[:128].numpy().view(numpy.uint32)), end=",\n")
        most = torch.finfo(dtype).max
        made = torch.from_numpy(floats).clamp(-most, most).to(dtype).view(torch.uint8).numpy()
        print(", ".join(f"0x{zlib.adler32(block.tobytes()):08X}" for block in made.reshape(BLOCKS, BLOCK)), end=",\n")


if __name__ == "__main__":
    main()
