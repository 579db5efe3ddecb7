"""The tensors of the heap and the blocks they sit on, autograd graphs included.

No CUDA call and no hook of the user's runs: storages tell their address, saved tensors are read raw and left out where
they have an unpack hook.
"""

import collections

from plimsoll import looking

GRAPH_NODES = 200_000
BELOW = 400_000
HOST_BYTES = 1024  # smaller host tensors are nobody's leak


class Tensors:
    """`blocks`: {address: (size, pool, line)}. `census`: their first sight; borrowed."""

    def __init__(self, torch, heap, blocks, census):
        self.torch = torch
        self.heap = heap
        self.blocks = blocks
        self.first = census.first
        self.windows = census.windows
        self.kinds = {}
        self.by_block = collections.defaultdict(list)  # address -> ids of tensors and storages
        self.host = collections.defaultdict(list)  # (shape, dtype) -> ids
        self.host_bytes = 0
        self.graphs = []
        self.graph_roots = {}  # id of a tensor -> blocks that its graph keeps
        self.model = set()
        self.fresh = set()  # blocks that were not there when the worker was ready
        self._batch = {}
        heap.own.update((id(self), id(self.__dict__)))

    def kind(self, cls):
        """'tensor', 'storage', 'module', 'graph' or '' for a type, without touching an instance."""
        found = self.kinds.get(cls)
        if found is None:
            mro = cls.__mro__
            torch = self.torch
            found = ""
            if torch.Tensor in mro:
                found = "tensor"
            elif torch.UntypedStorage in mro:
                found = "storage"
            elif torch.nn.Module in mro:
                found = "module"
            elif getattr(torch._C, "_CUDAGraph", None) in mro:
                found = "graph"
            self.kinds[cls] = found
        return found

    def age(self, address):
        return self.first.get(address, len(self.windows))

    def batch(self, address):
        """Blocks of different batches were made by different requests. A batch is an age; with one age only, the order
        in which the tensors were made stands in for it, in four parts."""
        return self._batch.get(address, self.age(address))

    # --- what is there

    def collect(self):
        heap = self.heap
        objs = looking.objects()
        heap.own.add(id(objs))
        heap.stats["objects"] = len(objs)
        weights = []
        kinds, kind = self.kinds, self.kind
        total = 0
        for o in objs:
            cls = type(o)
            what = kinds.get(cls)
            if what is None:
                what = kind(cls)
            if not what:
                continue
            if what == "module":
                self._note_weights(o, weights)
            elif what == "graph":
                self.graphs.append(heap.keep(o))
            else:
                total += 1
                self._note(o, what)
        o = None
        heap.own.discard(id(objs))
        del objs
        heap.stats["tensors"] = total
        self.model = {a for a in weights if self.age(a) == 0}  # weights that came later are growth like any other
        last = len(self.windows)
        self.fresh = {a for a in self.blocks if self.first.get(a, last) > 0}
        self._number_batches()

    def _note_weights(self, module, out):
        space = module.__dict__
        for group in ("_parameters", "_buffers"):
            for value in (space.get(group) or {}).values():
                try:
                    if value is not None and value.is_cuda:
                        out.append(value.untyped_storage().data_ptr())
                except Exception:
                    self.heap.stats["unreadable"] += 1

    def _note(self, t, what):
        try:
            if what == "storage":
                if t.device.type == "cuda":
                    self.by_block[t.data_ptr()].append(self.heap.keep(t))
            elif t.is_cuda:
                self.by_block[t.untyped_storage().data_ptr()].append(self.heap.keep(t))
            elif t.device.type == "cpu" and t.layout == self.torch.strided:
                size = t.untyped_storage().nbytes()
                if size >= HOST_BYTES:
                    self.host_bytes += size
                    self.host[(tuple(t.shape), str(t.dtype))].append(self.heap.keep(t))
        except Exception:  # a tensor without storage, or of a kind that nobody has thought of
            self.heap.stats["unreadable"] += 1

    def _number_batches(self):
        seen = [a for a in self.by_block if a in self.fresh]  # the heap lists what was made first, first
        if len({self.age(a) for a in seen}) == 1 and len(seen) >= 4:
            self._batch = {a: 1 + 4 * i // len(seen) for i, a in enumerate(seen)}

    def is_tensor(self, key):
        return self.kind(type(self.heap.obj(key))) == "tensor"

    def address(self, obj, what):
        try:
            return (obj.untyped_storage() if what == "tensor" else obj).data_ptr()
        except Exception:
            return 0

    # --- autograd: saved tensors are held by C++ and reached through grad_fn

    def _saved_by(self, node):
        cls = type(node)
        attributes = self.kinds.get(("saved", cls))
        if attributes is None:
            attributes = [a for a in dir(cls) if a.startswith("_raw_saved_")]
            self.kinds[("saved", cls)] = attributes
        out = []
        for attribute in attributes:
            try:
                raw = getattr(node, attribute)
            except RuntimeError:
                continue  # freed by backward()
            for saved in raw if isinstance(raw, (tuple, list)) else (raw,):
                try:
                    if getattr(saved, "unpack_hook", None) is not None:
                        continue
                    data = getattr(saved, "data", None)
                    if data is not None and data.is_cuda:
                        out.append(data.untyped_storage().data_ptr())
                except Exception:
                    self.heap.stats["unreadable"] += 1
        if "_raw_saved_tensors" in attributes:  # the context of a custom autograd.Function has attributes, too
            for value in (getattr(node, "__dict__", None) or {}).values():
                if self.kind(type(value)) == "tensor" and value.is_cuda:
                    out.append(value.untyped_storage().data_ptr())
        return out

    def graph_of(self, tensor, nodes, seen):
        """Blocks that the graph of `tensor` keeps, without nodes that were `seen`. `nodes` is the caller's list: it
        keeps the wrappers of the nodes alive, so that their ids stay theirs."""
        held = set()
        root = tensor.grad_fn
        if root is None or id(root) in seen:
            return held
        seen.add(id(root))
        at = len(nodes)
        nodes.append(root)
        while at < len(nodes) and len(nodes) < GRAPH_NODES:
            node = nodes[at]
            at += 1
            for address in self._saved_by(node):
                # A weight, or an input that was there when the worker was ready
                known = address in self.model or (self.age(address) == 0 and address in self.by_block)
                if address in self.blocks and not known:
                    held.add(address)
            for follower, _ in node.next_functions:
                if follower is not None and id(follower) not in seen:
                    seen.add(id(follower))
                    nodes.append(follower)
            if at % 4096 == 0 and self.heap.late():
                break
        return held

    def graph_pass(self):
        """The latest graph first, so that a chain belongs to its newest tensor."""
        heads = []
        for keys in self.by_block.values():
            for key in keys:
                t = self.heap.obj(key)
                if self.kind(type(t)) == "tensor" and t.grad_fn is not None:
                    heads.append((-t.grad_fn._sequence_nr(), key))
        t = None
        heads.sort()
        nodes, seen = [], set()
        self.heap.own.add(id(nodes))
        for _, key in heads:
            if self.heap.late() or len(nodes) >= GRAPH_NODES:
                break
            held = self.graph_of(self.heap.obj(key), nodes, seen)
            if held:
                self.graph_roots[key] = held
        self.heap.stats["graph_nodes"] = len(nodes)
        self.heap.own.discard(id(nodes))

    # --- what one object holds

    def held_by(self, key):
        """(blocks, blocks held by graphs only, tensors, nodes) below an object."""
        addresses, graph_held = set(), set()
        nodes, node_ids = [], set()
        self.heap.own.add(id(nodes))
        tensors = 0

        def leaf(o):
            nonlocal tensors
            what = self.kind(type(o))
            if what != "tensor" and what != "storage":
                return False
            address = self.address(o, what)
            if address in self.blocks and address not in self.model:
                addresses.add(address)
                tensors += 1
            if what == "tensor" and o.grad_fn is not None:
                graph_held.update(self.graph_of(o, nodes, node_ids))
            return True

        self.heap.below(key, BELOW, leaf)
        self.heap.own.discard(id(nodes))
        return addresses, graph_held - addresses, tensors, len(nodes)
