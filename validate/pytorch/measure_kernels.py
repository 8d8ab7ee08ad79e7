#!/usr/bin/env python3
"""Times of this device's kernels by size, as tables for `plimsoll calibrate table`: products, products of batches, causal attention, and sorts that move
bytes or convolve. Each kernel runs alone, behind a write that fills the cache; its time is the median.

  python3 validate/pytorch/measure_kernels.py --device cuda --dtype bf16 --seconds 60 -o out/kernels
  plimsoll calibrate table out/kernels/products.csv --of h200 -o mine.yaml --source "measure_kernels.py, 2026-11-30"
  plimsoll calibrate table out/kernels/sorts.csv --of h200 --with mine.yaml -o mine.yaml --source "measure_kernels.py, 2026-11-30"

Writes products.csv, batched.csv, attention.csv and sorts.csv (those with 8 rows at least), and kernels.json: all rows with quartiles, device, versions, date.
Sizes are drawn in an order that is the same every time, so that a run that --seconds ends has all of them in part.
"""

import argparse
import csv
import datetime
import json
import os
import random
import sys
import time

from plimsoll.trace import exporter

try:
    import torch
    from torch.nn import functional
except ModuleNotFoundError as missing:
    print(f"measure_kernels.py: {sys.executable} has no {missing.name} (Debian: apt-get install python3-torch, then /usr/bin/python3)", file=sys.stderr)
    sys.exit(2)

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
COLUMNS = {"products": ("m", "n", "k"), "batched": ("batch", "m", "n", "k"), "attention": ("batch", "sequence", "heads", "head_size"),
           "sorts": ("sort", "flops", "bytes")}
FEWEST = 8  # rows of a table, as `plimsoll calibrate table` has it
CACHE = 256 << 20  # bytes, more than a GPU's L2


def command_line():
    parser = exporter.OneLineParser(prog="measure_kernels.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    positive = exporter.positive
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="what runs the kernels (default cuda)")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16", help="of all but optimizers, which are in fp32 (default bf16)")
    parser.add_argument("--seconds", type=positive, default=60, metavar="N", help="no kernel begins later (default 60)")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="timed runs of each kernel (default 7)")
    parser.add_argument("--largest", type=positive, default=1 << 30, metavar="BYTES", help="of the operands and results of a kernel (default 1 GiB)")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER")
    return parser


def main(arguments):
    try:
        options = command_line().parse_args(arguments)
        if options.device == "cuda" and not torch.cuda.is_available():
            raise exporter.UsageError("--device cuda: PyTorch finds no GPU here")
        result = measured(options)
    except (exporter.UsageError, exporter.MeasurementError) as error:
        print(f"measure_kernels.py: {error}", file=sys.stderr)
        return error.exit_code
    write(result, options)
    return 0


# --- what is measured: (table, sizes as in its columns, function that makes the kernel of a device and dtype) ---------------------------------

def products():
    pairs = [(n, k) for n in (128, 768, 1024, 2048, 4096, 8192, 14336) for k in (128, 768, 1024, 2048, 4096, 8192, 14336)] + [(32000, 2048), (128256, 4096)]
    for m in (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384):
        for n, k in pairs:
            yield "products", (m, n, k), 2 * (m * n + n * k + m * k), product_of(m, n, k)


def product_of(m, n, k):
    def make(device, dtype):
        x, w = torch.randn(m, k, device=device, dtype=dtype), torch.randn(n, k, device=device, dtype=dtype)
        return lambda: torch.mm(x, w.t())
    return make


def batched_products():
    for batch in (8, 32, 96, 256):
        for m in (64, 256, 1024, 2048):
            for n in (64, 256, 1024, 2048):
                for k in (64, 128, 1024):
                    yield "batched", (batch, m, n, k), 2 * batch * (m * n + n * k + m * k), batched_of(batch, m, n, k)


def batched_of(batch, m, n, k):
    def make(device, dtype):
        a, b = torch.randn(batch, m, k, device=device, dtype=dtype), torch.randn(batch, k, n, device=device, dtype=dtype)
        return lambda: torch.bmm(a, b)
    return make


def attention():
    if not hasattr(functional, "scaled_dot_product_attention"):
        return
    for size in (64, 128):
        for batch, heads in ((1, 8), (1, 32), (4, 16), (8, 12), (8, 32), (32, 12)):
            for sequence in (128, 512, 1024, 2048, 4096, 8192):
                yield "attention", (batch, sequence, heads, size), 8 * batch * sequence * heads * size, attention_of(batch, sequence, heads, size)


def attention_of(batch, sequence, heads, size):
    def make(device, dtype):
        q, k, v = (torch.randn(batch, heads, sequence, size, device=device, dtype=dtype) for _ in range(3))
        return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return make


def rows():
    """Kernels over rows of numbers; bytes are those of all that a kernel reads and writes."""
    for m in (1024, 2048, 4096, 8192, 16384):
        for n in (768, 1024, 2048, 4096, 8192):
            for sort, kernel, passes in ROW_KERNELS:
                yield "sorts", (sort, 1, passes * m * n), 2 * passes * m * n, row_kernel(kernel, m, n)


def row_kernel(kernel, m, n):
    def make(device, dtype):
        x, g = torch.randn(m, n, device=device, dtype=dtype), torch.randn(m, n, device=device, dtype=dtype)
        return kernel(x, g)
    return make


def layer_norm(x, _):
    weight, bias = (torch.ones(x.shape[1], device=x.device, dtype=x.dtype) for _ in range(2))
    return lambda: torch.ops.aten.native_layer_norm(x, x.shape[1:], weight, bias, 1e-5)


def layer_norm_backward(x, g):
    weight, bias = (torch.ones(x.shape[1], device=x.device, dtype=x.dtype) for _ in range(2))
    _, mean, deviation = torch.ops.aten.native_layer_norm(x, x.shape[1:], weight, bias, 1e-5)
    return lambda: torch.ops.aten.native_layer_norm_backward(g, x, x.shape[1:], mean, deviation, weight, bias, [True, True, True])


def softmax_backward(x, g):
    y = torch.softmax(x, -1)
    return lambda: torch.ops.aten._softmax_backward_data(g, y, -1, x.dtype)


ROW_KERNELS = (("elementwise", lambda x, g: lambda: x + g, 3), ("elementwise", lambda x, g: lambda: functional.gelu(x), 2),
               ("elementwise", lambda x, g: lambda: torch.ops.aten.gelu_backward(g, x), 3), ("norm", layer_norm, 2), ("norm", layer_norm_backward, 3),
               ("softmax", lambda x, g: lambda: torch.softmax(x, -1), 2), ("softmax", softmax_backward, 3))


def updates():
    for count, numbers in ((1, 1 << 20), (1, 1 << 22), (1, 1 << 24), (1, 1 << 26), (16, 1 << 20), (64, 1 << 18), (64, 1 << 20), (148, 1 << 20)):
        yield "sorts", ("optimizer", 1, 7 * 4 * count * numbers), 16 * count * numbers, update_of(count, numbers)


def update_of(count, numbers):
    """Of one kernel where the device has a fused Adam: parameters, gradients and two states are read, all but gradients written."""
    def make(device, _):
        parameters = [torch.nn.Parameter(torch.randn(numbers, device=device)) for _ in range(count)]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        return torch.optim.AdamW(parameters, **({"fused": True} if device == "cuda" else {})).step
    return make


SHAPES = ((64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 128, 1, 1), (128, 56, 128, 3, 2), (128, 28, 128, 3, 1), (128, 28, 512, 1, 1),
          (256, 14, 256, 3, 1), (256, 14, 1024, 1, 1), (512, 7, 512, 3, 1), (512, 7, 2048, 1, 1), (3, 224, 64, 7, 2))


def convolutions():
    """In the order of numbers that a picture's memory has, and pixel by pixel."""
    for batch in (16, 64, 128):
        for shape in SHAPES:
            inner, side, outer, kernel, stride = shape
            made = batch * outer * (side // stride) ** 2
            flops, numbers = 2 * made * inner * kernel**2, batch * inner * side**2 + made + outer * inner * kernel**2
            for layout in ("", "channels_last_"):
                for of in ("convolution", "convolution_input_gradient", "convolution_weight_gradient"):
                    yield "sorts", (layout + of, flops, numbers), 2 * numbers, convolution_of(batch, shape, layout, of)


def convolution_of(batch, shape, layout, of):
    inner, side, outer, kernel, stride = shape

    def make(device, dtype):
        order = {"memory_format": torch.channels_last if layout else torch.contiguous_format}
        x = torch.randn(batch, inner, side, side, device=device, dtype=dtype).to(**order)
        w = torch.randn(outer, inner, kernel, kernel, device=device, dtype=dtype).to(**order)
        how = (None, [stride, stride], [kernel // 2, kernel // 2], [1, 1], False, [0, 0], 1)
        if of == "convolution":
            return lambda: torch.ops.aten.convolution(x, w, *how)
        g = torch.randn_like(torch.ops.aten.convolution(x, w, *how))
        wanted = [of == "convolution_input_gradient", of == "convolution_weight_gradient", False]
        return lambda: torch.ops.aten.convolution_backward(g, x, w, *how, wanted)
    return make


def cases(largest):
    """All kernels whose numbers take no more bytes in 16 bits, in a random order."""
    found = [case for make in (products, batched_products, attention, rows, updates, convolutions) for case in make() if case[2] <= largest]
    random.Random(7).shuffle(found)
    return found


# --- how it is measured ------------------------------------------------------------------------------------------------------------------------

class Clock:
    def __init__(self, device, rounds):
        self.device, self.rounds = device, rounds
        self.flushed = torch.empty(CACHE if device == "cuda" else 1, dtype=torch.uint8, device=device)

    def seconds(self, kernel):
        """Of each round, behind one that does not count."""
        kernel()
        return sorted((self.on_gpu if self.device == "cuda" else self.on_cpu)(kernel) for _ in range(self.rounds))

    def on_gpu(self, kernel):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flushed.zero_()
        torch.cuda._sleep(200_000)  # cycles, in which the host issues what is timed
        began.record()
        kernel()
        ended.record()
        ended.synchronize()
        return began.elapsed_time(ended) / 1e3

    @staticmethod
    def on_cpu(kernel):
        began = time.perf_counter()
        kernel()
        return time.perf_counter() - began


def measured(options):
    dtype, clock = DTYPES[options.dtype], Clock(options.device, options.rounds)
    bytes_of_number = torch.empty(0, dtype=dtype).element_size()
    over, rows_, all_cases = time.monotonic() + options.seconds, [], cases(options.largest)
    for table, sizes, _, make in all_cases:
        if time.monotonic() > over:
            break
        try:
            seconds = clock.seconds(make(options.device, dtype))
        except RuntimeError as error:  # no kernel of this dtype, or no memory
            rows_.append({"table": table, "sizes": sizes, "error": str(error).splitlines()[0]})
            continue
        if table == "sorts" and sizes[0] != "optimizer":
            sizes = (*sizes[:2], sizes[2] * bytes_of_number)
        rows_.append({"table": table, "sizes": sizes, "us": [1e6 * seconds[round(q * (len(seconds) - 1))] for q in (0.25, 0.5, 0.75)]})
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    return {"format": "plimsoll.kernels_measurement.v1", "origin": f"measured by measure_kernels.py, torch {torch.__version__}", "device": name,
            "dtype": options.dtype, "date": datetime.date.today().isoformat(), "load_average": list(os.getloadavg()),
            "left_out": len(all_cases) - len(rows_), "rows": rows_}


def write(result, options):
    os.makedirs(options.output, exist_ok=True)
    with open(os.path.join(options.output, "kernels.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    failed = [row for row in result["rows"] if "error" in row]
    print(f"{len(result['rows']) - len(failed)} kernels on {result['device']} in {result['dtype']}; {result['left_out']} left out by --seconds, "
          f"{len(failed)} failed{': ' + failed[0]['error'] if failed else ''}")
    for table, columns in COLUMNS.items():
        lines = [(*row["sizes"], f"{row['us'][1]:.3f}") for row in result["rows"] if row["table"] == table and "us" in row]
        if len(lines) < FEWEST:
            continue
        path = os.path.join(options.output, f"{table}.csv")
        with open(path, "w", encoding="utf-8", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow((*columns, "time_us"))
            out.writerows(lines)
        print(f"{path}: {len(lines)} rows")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
