"""llama-server out of the wheel `xllamacpp`: its routes without compiling it. Takes the words of llama-server that the tests use.

    xllama.py --model M.gguf --port 8080 --parallel 4 --ctx-size 2048 [--kv-unified] [--cache-ram 0]
"""

import argparse
import signal
import threading

import xllamacpp

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--parallel", type=int, default=4)
parser.add_argument("--ctx-size", type=int, default=2048)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--kv-unified", action="store_true")
parser.add_argument("--metrics", action="store_true")  # what the preset adds: they are on anyway
parser.add_argument("--cache-ram", type=int)
o = parser.parse_args()

end = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: end.set())
p = xllamacpp.CommonParams()
p.model.path = o.model
p.hostnames = [o.host]
p.port = o.port
p.n_parallel = o.parallel
p.n_ctx = o.ctx_size
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = o.threads
p.endpoint_metrics = p.endpoint_slots = True
p.kv_unified = o.kv_unified
if o.cache_ram is not None:
    p.cache_ram_mib = o.cache_ram
server = xllamacpp.Server(p)
end.wait()
del server  # it ends with the object
