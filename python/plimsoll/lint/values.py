"""What an expression may be, as far as syntax tells: a tensor and where it lies, a model, a container and its bound."""

import ast

TENSOR_PLAIN = {
    "shape",
    "dtype",
    "device",
    "ndim",
    "size",
    "dim",
    "numel",
    "item",
    "tolist",
    "numpy",
    "is_cuda",
    "layout",
}
CREATES = {
    "tensor", "as_tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "arange", "linspace", "eye",
    "zeros_like", "ones_like", "empty_like", "from_numpy", "Tensor", "LongTensor", "FloatTensor", "randperm",
}  # fmt: skip
FROM_INPUT = {
    "tensor",
    "as_tensor",
    "from_numpy",
    "Tensor",
    "LongTensor",
    "FloatTensor",
    "full",
    "zeros",
    "ones",
    "empty",
}
KEEPS_MODEL = {
    "to", "cuda", "cpu", "half", "float", "double", "bfloat16", "eval", "train", "requires_grad_", "share_memory",
    "compile", "xpu",
}  # fmt: skip
# modules without weights: making one is no load
WEIGHTLESS = (
    "Softmax", "LogSoftmax", "Softmin", "Sigmoid", "ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "GELU", "SiLU", "Mish",
    "Tanh", "Hardtanh", "Identity", "Dropout", "Flatten", "Unflatten", "Upsample", "MaxPool",
    "AvgPool", "AdaptiveAvgPool",
    "AdaptiveMaxPool", "CosineSimilarity", "PairwiseDistance", "ZeroPad", "ReflectionPad", "Fold",
    "Unfold", "Parameter",
)  # fmt: skip
WRAPS_MODEL = {
    "torch.compile", "torch.jit.script", "torch.jit.optimize_for_inference", "torch.jit.freeze",
    "torch.nn.DataParallel",
    "torch.ao.quantization.quantize_dynamic", "torch.quantization.quantize_dynamic",
}  # fmt: skip
# dotted name -> does a call of the model build an autograd graph
LOADERS = {
    "torch.load": True, "torch.jit.load": True, "torch.hub.load": True, "transformers.pipeline": False,
    "sentence_transformers.SentenceTransformer": False, "sentence_transformers.CrossEncoder": False,
    "onnxruntime.InferenceSession": False, "joblib.load": False, "whisper.load_model": False, "ultralytics.YOLO": False,
    "timm.create_model": True, "tensorflow.keras.models.load_model": False, "keras.models.load_model": False,
    "tensorflow.saved_model.load": False, "vllm.LLM": False, "llama_cpp.Llama": False,
    "faster_whisper.WhisperModel": False, "spacy.load": False, "ctranslate2.Translator": False,
}  # fmt: skip
DOWNLOADS = {
    "huggingface_hub.snapshot_download", "huggingface_hub.hf_hub_download", "torch.hub.load_state_dict_from_url",
    "torch.hub.download_url_to_file", "urllib.request.urlretrieve", "gdown.download", "wget.download", "nltk.download",
    "spacy.cli.download", "modelscope.snapshot_download",
}  # fmt: skip
BY_NAME = {
    "sentence_transformers.SentenceTransformer", "sentence_transformers.CrossEncoder", "vllm.LLM", "whisper.load_model",
    "faster_whisper.WhisperModel",
}  # fmt: skip
BLOCKING = {
    "time.sleep", "urllib.request.urlopen", "subprocess.run", "subprocess.call", "subprocess.check_call",
    "subprocess.check_output", "os.system", "socket.create_connection", "torch.cuda.synchronize",
}  # fmt: skip
HTTP = {"get", "post", "put", "delete", "patch", "head", "request", "stream"}
CONTAINERS = {
    "list": "list", "dict": "dict", "set": "set", "collections.deque": "deque", "collections.OrderedDict": "dict",
    "collections.defaultdict": "dict", "collections.Counter": "dict", "queue.Queue": "queue",
    "queue.SimpleQueue": "queue",
    "queue.LifoQueue": "queue", "queue.PriorityQueue": "queue", "asyncio.Queue": "queue",
    "multiprocessing.Queue": "queue",
}  # fmt: skip
BOUNDED_TYPES = ("cachetools.", "weakref.", "diskcache.", "lru.")


class Model:
    """A model of this process, by where it was made."""

    def __init__(self, line, graph, ready, settles=True):
        self.line = line  # of the last statement that made it what it is
        self.graph = graph  # a call outside inference_mode keeps what backward would need
        self.ready = ready  # eval() was called, or its loader does
        self.settles = settles  # eval() says something to it
        self.called = False


class Container:
    def __init__(self, kind, lasting, bounded, name="", node=None):
        self.kind = kind
        self.lasting = lasting  # made outside a request
        self.bounded = bounded
        self.name = name
        self.node = node
        self.contents = PLAIN
        self.evicts = False
        self.escapes = False
        self.stores = {}  # id of frame -> how often that frame could have ended before


class Thing:
    """An instance of a class of this file."""

    def __init__(self, cls):
        self.cls = cls
        self.attrs = {}


class Value:
    __slots__ = ("kind", "dev", "graph", "src", "ref")

    def __init__(self, kind, dev=False, graph=False, src=frozenset(), ref=None):
        self.kind = kind
        self.dev = dev  # lies on a device
        self.graph = graph  # carries an autograd graph
        self.src = src  # parameters without a limit that it is as long as
        self.ref = ref  # Model, Container, Thing, function node

    def with_src(self, src):
        return Value(self.kind, self.dev, self.graph, frozenset(src), self.ref)


PLAIN = Value("plain")
NOTHING = Value("unknown")
RANK = ("plain", "unknown", "function", "tokenizer", "container", "thing", "model", "tensor", "request", "exception")


def join(*values):
    """What holds any of these: the worst of them."""
    if not values:
        return PLAIN
    worst = max(values, key=lambda v: RANK.index(v.kind))
    held = [v.ref.contents for v in values if v.kind == "container"]
    deep = [v for v in values if v.kind == "tensor"] + [v for v in held if v.kind == "tensor"]
    worst_held = max(held, key=lambda v: RANK.index(v.kind)) if held else PLAIN
    if RANK.index(worst_held.kind) > RANK.index("thing") > RANK.index(worst.kind):
        worst = worst_held
    return Value(
        worst.kind,
        any(v.dev for v in deep),
        any(v.graph for v in deep),
        frozenset().union(*(v.src for v in values)),
        worst.ref,
    )


def held(value):
    """What keeping the value keeps alive."""
    return value.ref.contents if value.kind == "container" and isinstance(value.ref, Container) else value


def is_path_like(text):
    return text.startswith(("/", "./", "../", "~")) or text.endswith((".pt", ".bin", ".onnx", ".gguf"))


def first_text(source, call, *names):
    """The first argument, or one of these keywords, when it is a text that can be known."""
    node = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg in names), None)
    value = source.literal(node)
    return value if isinstance(value, str) else None


def keyword(call, name):
    return next((k.value for k in call.keywords if k.arg == name), None)


def loader(source, name, call):
    """A call that loads or builds a model: Value of it, or None."""
    last = name.rsplit(".", 1)[-1]
    line = call.lineno
    if name in LOADERS:
        graph = LOADERS[name]
        return Value("model", ref=Model(line, graph, not graph, name != "torch.load"))
    if last == "from_pretrained":
        owner = name.rsplit(".", 2)[-2]
        if any(w in owner for w in ("Tokenizer", "Processor", "FeatureExtractor")):
            return Value("tokenizer", ref=name)
        if owner.endswith("Config"):
            return None
        return Value("model", ref=Model(line, not owner.endswith("Pipeline"), True))  # it calls eval() itself
    if name.startswith("bentoml.") and last == "load_model" and name.count(".") == 2:
        torch = name.split(".")[1] in ("pytorch", "torchscript", "pytorch_lightning")
        return Value("model", ref=Model(line, torch, not torch))
    if name.startswith("torchvision.models.") and last[:1].islower():
        return Value("model", ref=Model(line, True, False))
    weightless = last.rstrip("123d").startswith(WEIGHTLESS) or last.endswith("Loss")
    if name.startswith("torch.nn.") and name.count(".") == 2 and last[:1].isupper() and not weightless:
        return Value("model", ref=Model(line, True, False))
    if name in source.classes and source.is_module_class(source.classes[name]):
        return Value("model", ref=Model(line, True, False))
    return None


def downloads(source, name, call):
    """Would this call go to the network for weights or a tokenizer, as it is written?"""
    last = name.rsplit(".", 1)[-1]
    if source.offline or source.literal(keyword(call, "local_files_only")) is True:
        return False
    if name in DOWNLOADS:
        return True
    if last == "from_pretrained" or name in BY_NAME:
        text = first_text(source, call, "pretrained_model_name_or_path", "model_name_or_path", "model")
        return text is not None and not is_path_like(text)
    if name == "transformers.pipeline":
        text = first_text(source, ast.Call(func=call.func, args=call.args[1:2], keywords=call.keywords), "model")
        return (text is not None and not is_path_like(text)) or (len(call.args) < 2 and keyword(call, "model") is None)
    if name == "torch.hub.load":
        return source.literal(keyword(call, "source")) != "local"
    if name == "timm.create_model":
        return source.literal(keyword(call, "pretrained")) is True
    if name.startswith("torchvision.models.") and last[:1].islower():
        return any(
            k.arg in ("weights", "pretrained") and source.literal(k.value) not in (None, False) for k in call.keywords
        )
    return False
