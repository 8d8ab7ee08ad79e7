"""Measure a torch module and write a Plimsoll trace.

  python3 traces/export_pytorch.py --model resnet50 --batch 8 -o resnet50.json
  python3 traces/export_pytorch.py --model gpt --layers 12 --width 768 --sequence 256 --batch 4 -o gpt.json
  python3 traces/export_pytorch.py --model my_model.py:build --stages auto --device cuda -o mine.json

my_model.py:build is an nn.Module, or a function that returns one, or (model, loss, input), or (model, loss, input, targets): model an
nn.Module, or a list of modules or of (name, module) in a row; loss a function of the outputs, or of outputs and targets, that returns
one number (default: the model's own loss); input a tensor, a tuple of arguments, or a dict of
arguments by name. The model is cut into stages where --stages says; a stage never overwrites the input that it is run from.
Times are medians, memory is exact storage bytes; traces/measured.md says how each is measured.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile

from .errors import MeasurementError, UsageError

HERE = os.path.dirname(os.path.abspath(__file__))
CHILD = "PLIMSOLL_EXPORT_LIBRARY"  # set in the second start, names the preloaded counter or is empty


class OneLineParser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(f"{message}; see {self.prog} --help")


def positive(text):
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a positive integer, found '{text}'")
    return value


def stage_names(text):
    return "auto" if text == "auto" else [part for part in text.split(",") if part]


def layers(text):
    """7 of 'layers=7'."""
    name, _, number = text.partition("=")
    if name != "layers":
        raise argparse.ArgumentTypeError(f"expected layers=N, found '{text}'")
    return positive(number)


def shape(text):
    return [positive(part) for part in text.split(",")]


def probability(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to below 1, found '{text}'")
    return value


def command_line():
    """The parser of the command's options; it raises UsageError where others exit."""
    parser = OneLineParser(prog="export_pytorch.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what to measure")
    what.add_argument("--model", required=True, metavar="NAME",
                      help="resnet18, resnet50, resnet101, vgg16, densenet121 (with torchvision), gpt, mlp, "
                           "or your own: file.py:name or module:name")
    what.add_argument("--graph", action="store_true",
                      help="write the operations of a whole iteration (kind graph) instead of the chain of stages")
    what.add_argument("--stages", type=stage_names, metavar="auto|PATH,PATH...",
                      help="where the model is cut: where few tensors are alive, or before these modules (before the second call of one: "
                           "PATH#2). Default: each module of an nn.Sequential or list, of other models auto")
    what.add_argument("--batch", type=positive, default=8, metavar="N", help="samples of a micro-batch (default 8)")
    what.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="of parameters and activations (default fp32)")
    what.add_argument("--amp", choices=("bf16", "fp16"), help="autocast around each forward; parameters stay as --dtype says")
    what.add_argument("--compile", action="store_true",
                      help="run each stage of a chain through torch.compile (torch 2): saved tensors and times differ then")
    what.add_argument("--optimizer", choices=("sgd", "momentum", "adam", "adamw"),
                      help="measure its step too: written into the source, and with --graph an op for each parameter")
    what.add_argument("--image-size", type=positive, default=224, metavar="N", help="pixels a side (default 224)")
    what.add_argument("--input-shape", type=shape, metavar="N,N,...",
                      help="of a normal random input, where your model gives none")
    what.add_argument("--layers", type=positive, default=12, metavar="N", help="of gpt and mlp (default 12)")
    what.add_argument("--width", type=positive, default=768, metavar="N", help="of gpt and mlp (default 768)")
    what.add_argument("--heads", type=positive, default=12, metavar="N", help="of gpt (default 12)")
    what.add_argument("--sequence", type=positive, default=256, metavar="N", help="tokens of gpt (default 256)")
    what.add_argument("--vocabulary", type=positive, default=50257, metavar="N", help="of gpt (default 50257)")
    what.add_argument("--dropout", type=probability, default=0.0, metavar="P", help="of gpt (default 0)")
    what.add_argument("--attention", choices=("explicit", "fused"), default="explicit", help="of gpt; fused needs torch 2")
    what.add_argument("--untied", action="store_true", help="gpt: an output matrix of its own instead of the embedding's")
    what.add_argument("--seed", type=int, default=0, metavar="N")
    what.add_argument("--meta", action="store_true",
                      help="with --graph: run the model on shapes, without its memory; the trace has flops and bytes of each operation, no times")
    what.add_argument("--repeat", type=layers, metavar="layers=N",
                      help="with --graph: so many of the equal layers that stand in a row, of copies of the last")
    how = parser.add_argument_group("how to measure")
    how.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    how.add_argument("--threads", type=positive, default=1, metavar="N",
                     help="CPU threads (default 1: times are then process CPU time; with more, wall time)")
    how.add_argument("--repetitions", type=positive, default=7, metavar="N", help="timed passes (default 7)")
    how.add_argument("--warm-up", type=positive, default=2, metavar="N", help="passes before (default 2)")
    how.add_argument("--memory-counter", choices=("auto", "malloc", "sweep"), default="auto",
                     help="on a CPU: malloc preloads a small C library and is exact (needs cc and glibc), "
                          "sweep is portable; auto takes malloc where it can")
    how.add_argument("--bytes-of", metavar="TRACE",
                     help="measure bytes only, and write TRACE, which must be of the same chain, with these bytes and its own "
                          "times and work")
    how.add_argument("--no-identity-check", action="store_true",
                     help="write the trace even where live bytes do not follow from what autograd saves")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the trace to write")
    return parser


def main(arguments):
    """The command: exit code 0, 1 (MeasurementError) or 2 (UsageError). The process starts itself anew, with the counter of live bytes loaded."""
    try:
        options = command_line().parse_args(arguments)
        if options.graph and options.bytes_of:
            raise UsageError("--bytes-of is for chains; leave --graph out")
        if options.bytes_of and options.optimizer:
            raise UsageError("--bytes-of measures no times; leave --optimizer out")
        if options.graph and options.compile:
            raise UsageError("--compile is for chains; leave --graph out")
        if options.meta:
            refuse_measuring(options)
        if options.repeat and not options.graph:
            raise UsageError("--repeat is for operations: give --graph, too")
        if options.repeat and options.optimizer:
            raise UsageError("--repeat has no updates: leave --optimizer out")
        folder = os.path.dirname(os.path.abspath(options.output))
        if not os.path.isdir(folder):
            raise UsageError(f"--output {options.output}: no folder {folder}")
        if CHILD not in os.environ:
            start_again(options)
        leave_no_preload()
        export(options)
    except (UsageError, MeasurementError) as error:
        print(f"export_pytorch.py: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def refuse_measuring(options):
    """What asks for a measurement, or for the stages that one finds."""
    if not options.graph:
        raise UsageError("--meta writes operations: give --graph, too")
    for name, is_given in (("--optimizer", options.optimizer), ("--stages", options.stages), ("--device cuda", options.device == "cuda")):
        if is_given:
            raise UsageError(f"--meta measures nothing on a device: leave {name} out")


# --- the second start: allocator settings are read when a process begins ---------------------------------------------------

def start_again(options):
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment_of(options))


def environment_of(options):
    """With a quiet malloc, a fixed number of threads and the counter of live bytes."""
    environment = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = str(options.threads)
    # Else glibc returns large blocks to the kernel and faults them in again: up to 17 % of the time.
    environment |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "68719476736", "MALLOC_TOP_PAD_": "268435456"}
    library = built_counter(options)
    environment[CHILD] = library
    if library:
        environment["LD_PRELOAD"] = " ".join(filter(None, [library, os.environ.get("LD_PRELOAD", "")]))
    return environment


def built_counter(options):
    """Path of the compiled live_bytes.c, or '' where the portable counter is used."""
    if options.device != "cpu" or options.memory_counter == "sweep":
        return ""
    compiler = shutil.which("cc")
    problem = "no C compiler 'cc'" if compiler is None else "not Linux" if sys.platform != "linux" else ""
    if not problem:
        library = os.path.join(tempfile.mkdtemp(prefix="plimsoll_"), "live_bytes.so")
        source = os.path.join(HERE, "live_bytes.c")
        command = [compiler, "-O2", "-shared", "-fPIC", "-pthread", source, "-o", library]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return library
        shutil.rmtree(os.path.dirname(library))
        problem = f"{compiler} failed"
    if options.memory_counter == "malloc":
        raise UsageError(f"--memory-counter malloc: {problem}")
    print(f"export_pytorch.py: {problem}: using the portable memory counter (misses temporaries inside a kernel)",
          file=sys.stderr)
    return ""


def leave_no_preload():
    """Processes that this one starts get a plain environment; the loaded library needs its file no more."""
    library = os.environ.pop(CHILD)
    if library:
        os.environ.pop("LD_PRELOAD", None)
        shutil.rmtree(os.path.dirname(library), ignore_errors=True)


# --- the measurement -----------------------------------------------------------------------------------------------------

def export(options):
    """Measure as the options say (of command_line), in this process as it is, and write the trace. Raises UsageError and MeasurementError."""
    try:
        import torch
    except ImportError as error:
        raise UsageError(f"{sys.executable} has no torch (Debian: apt-get install python3-torch, "
                         "then /usr/bin/python3)") from error
    from .chain_trace import measure_chain
    from .clocks import clock_for
    from .graph_trace import measure_graph
    from .json_text import json_text
    from .live_bytes import counter_for
    from .models import chain_for, refuse_missing

    refuse_missing(options)
    if options.meta:
        return export_without_memory(options)
    torch.set_num_threads(options.threads)
    chain = chain_for(options)
    clock, counter = clock_for(options.device, options.threads), counter_for(options.device)
    say = lambda text: print(f"{chain.name}: {text}", file=sys.stderr)
    load = os.getloadavg()
    if options.bytes_of:
        return export_bytes(options, chain, counter, say)
    if options.graph:
        trace = measure_graph(chain, clock, counter, options.repetitions, options.warm_up, say, options.optimizer)
    else:
        trace = measure_chain(chain, clock, counter, options.repetitions, options.warm_up, say, not options.no_identity_check,
                              options.optimizer)
    trace["source"] = origin(options, clock, counter, load) | trace["source"]
    trace = with_layers(trace, options)
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(json_text(trace))
    report_graph(trace, options, say) if options.graph else report_chain(trace, options, say)


def export_without_memory(options):
    """Fake tensors stand for those of the model from its making on."""
    from plimsoll.torch.versions import autocast_for, fake_tensors

    from .json_text import json_text
    from .meta_trace import graph_without_times, whole_chain
    from .models import subject_for

    with fake_tensors():
        chain = whole_chain(subject_for(options), autocast_for(options.device, options.amp))
        trace = with_layers(graph_without_times(chain), options)
    trace["source"] = {"kind": "computed", "framework": "PyTorch", "versions": versions(), "dtype": options.amp or options.dtype,
                       **when_and_how()} | trace["source"]
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(json_text(trace))
    print(f"{chain.name}: {len(trace['ops'])} operations on {len(trace['tensors'])} tensors, without times; wrote {options.output}", file=sys.stderr)


def with_layers(trace, options):
    from .repeat_layers import repeated
    return repeated(trace, options.repeat) if options.repeat else trace


def export_bytes(options, chain, counter, say):
    """Bytes do not depend on what else the machine does, so they may be measured where times would be noise."""
    from .chain_trace import measure_chain_again
    from .json_text import json_text

    before = trace_in(options.bytes_of)
    trace = measure_chain_again(chain, before, counter, options.warm_up, say, not options.no_identity_check)
    trace["source"] |= {"memory_counter": counter.name, "bytes": {
        "measured_again": "all bytes, kept tensors, flags and peaks; times and work are of the command above",
        **device_names(options.device), "versions": versions(), **when_and_how()}}
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(json_text(trace))
    report_bytes(trace, options, say)


def trace_in(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"--bytes-of {path}: {error}") from error


def when_and_how():
    return {"date": datetime.date.today().isoformat(),
            "command": "python3 traces/export_pytorch.py " + shlex.join(sys.argv[1:])}


def origin(options, clock, counter, load):
    return {
        "kind": "measured",
        **device_names(options.device),
        "framework": "PyTorch",
        "versions": versions(),
        "dtype": options.amp or options.dtype,
        **when_and_how(),
        "repetitions": options.repetitions,
        "warm_up": options.warm_up,
        "threads": options.threads,
        "clock": clock.name,
        "load_average": [[round(x, 2) for x in load], [round(x, 2) for x in os.getloadavg()]],
        "memory_counter": counter.name,
        "flops_rule": work_rules()[0],
        "bytes_moved_rule": work_rules()[1],
    }


def work_rules():
    from .work import BYTES_MOVED_RULE, FLOPS_RULE
    return FLOPS_RULE, BYTES_MOVED_RULE


def versions():
    """{what measures: its version}, for a trace's source."""
    import torch
    found = {"torch": torch.__version__, "python": platform.python_version(),
             "system": f"{platform.system()} {platform.machine()}"}
    for name in ("torchvision", "numpy"):
        if name in sys.modules:
            found[name] = sys.modules[name].__version__
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
        found["cudnn"] = torch.backends.cudnn.version()
    blas = sorted({os.path.realpath(line.split()[-1]) for line in open("/proc/self/maps", encoding="utf-8") if "blas" in line}
                  if sys.platform == "linux" else [])
    if blas:
        found["blas"] = ", ".join(os.path.basename(path) for path in blas)
    return found


def device_names(device):
    """`device` reads as in platform files: what torch.cuda reports, or the model name of /proc/cpuinfo."""
    import torch
    from .device_name import device_name, this_processor
    if device == "cuda":
        return {"device": device_name(torch.cuda.get_device_name())}
    facts = {}
    if os.path.exists("/proc/cpuinfo"):
        for line in open("/proc/cpuinfo", encoding="utf-8"):
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    details = [f"{key} {facts[key]}" for key in ("cpu family", "model", "stepping") if key in facts]
    return {"device": this_processor(), "device_detail": ", ".join([*details, f"{os.cpu_count()} processors"])}


def report_graph(trace, options, say):
    spread = trace["source"].get("spread")
    say(f"{len(trace['ops'])} operations on {len(trace['tensors'])} tensors, sum of their times {sum(op['time_s'] for op in trace['ops']):.4f} s"
        f"{'' if spread is None else ', spread {:.1%}'.format(spread['whole_pass'])}; wrote {options.output}")


def report_chain(trace, options, say):
    report_bytes(trace, options, say)
    source = trace["source"]
    check = source["check"]
    say(f"{len(trace['stages'])} stages, sum of stage times {check['sum_of_stage_times_s']:.4f} s, plain iteration "
        f"{check['plain_iteration_s']:.4f} s, whole-pass spread {source['spread']['whole_pass']:.1%}")


def report_bytes(trace, options, say):
    source = trace["source"]
    check = source["check"]
    if check["identity"] != "exact on all stages":
        say(f"warning: live bytes do not follow from what autograd saves on {len(check['identity'])} counts; "
            "see source.check.identity")
    if source["workspaces_clamped_to_zero"]:
        say(f"{len(source['workspaces_clamped_to_zero'])} negative workspaces set to 0 (saved tensors die before the "
            "gradients appear); see source.workspaces_clamped_to_zero")
    for key in ("outputs_that_share_a_storage_with_what_was_there", "saved_but_alive_before_and_not_counted_bytes"):
        if key in source:
            say(f"warning: {key.replace('_', ' ')}: {source[key]}")
    say(f"peaks of plain training {check['plain_iteration_peak_bytes']} B, stage by stage {check['stagewise_peak_bytes']} B; "
        f"wrote {options.output}")
