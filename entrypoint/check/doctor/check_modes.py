"""Check how a script deals with its mode: TF_CONFIG, hosts, GPUs by number, servers of workers, ports."""

import ast
import re
from collections.abc import Iterator

from entrypoint.check.doctor.check_order import is_in_scope
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.choices import PsProgram
from entrypoint.launcher.job.job import Mode
from entrypoint.launcher.plan.plan import Role
from entrypoint.usercode import api_names as api
from entrypoint.usercode.guards import sets, tried
from entrypoint.usercode.source import (
    SourceFile,
    Use,
    made_by,
    matches,
    text_behind,
    text_of,
    texts_of,
    value_of,
    values_of,
)

_DEVICES = (".list_physical_devices", ".list_logical_devices")
_RANKS = ("horovod.*.rank", "smdistributed.*.rank")
_LOCAL_RANKS = ("horovod.*.local_rank", "smdistributed.*.local_rank")
_HOST_NAMES = ("socket.gethostname", "socket.getfqdn", "platform.node")
_HOSTS = re.compile(r"SM_HOSTS|SM_CURRENT_HOST|current_host|resourceconfig")
_LOCAL = re.compile(r"^(localhost|127\.[\d.]+|0\.0\.0\.0)(:|$)")
_KEPT = re.compile(r"SM_MODEL_DIR|/opt/ml/model")
_ONE_FILE = re.compile(r"\.(h5|hdf5|keras)\b|save_format")  # formats that Keras writes on the chief alone
_OTHER_CLUSTERS = (".ClusterSpec", ".SimpleClusterResolver", ".SlurmClusterResolver", ".KubernetesClusterResolver")
_WAITS = (".sleep", ".wait", ".wait_for_termination", ".pause", ".target", ".start_std_server")
_DATASET_FUNCTIONS = (".create_per_worker_dataset", ".DatasetCreator", ".distribute_datasets_from_function")
# Servers, and the argument that has their port, by its position and name: the port, or an address with it.
_LISTENS = {
    (".bind", ".HTTPServer", ".ThreadingHTTPServer", ".TCPServer", ".ThreadingTCPServer", ".UDPServer"): (0, "address"),
    (".start_http_server",): (0, "port"),
    (".make_server", "uvicorn.run", "*app.run"): (1, "port"),
}


def of_modes(case: Case) -> Iterator[Finding]:
    """Yield what contradicts the job's mode, hosts, GPUs and ports."""
    yield from _of_tf_config(case)
    yield from _of_steps(case)
    if case.job is None:
        return
    yield from _of_host_names(case)
    yield from _of_gpu_numbers(case)
    yield from _of_ports(case)
    if case.together(Mode.PS):
        yield from _of_servers(case)
        yield from _of_dataset_functions(case)
        yield from _of_parts(case)


# --- TF_CONFIG, and the hosts' names ---


def _of_tf_config(case: Case) -> Iterator[Finding]:
    code = case.code
    if not (case.may_be(Mode.MWMS) or case.may_be(Mode.PS)) or case.mode is Mode.SINGLE:
        return
    strategies = [] if code.has(*_OTHER_CLUSTERS) else list(code.made(*api.WORKERS, *api.SERVERS))
    known = case.job is not None and case.hosts > 1 and bool(strategies)
    written = list(sets(code, "TF_CONFIG"))
    for source, node in written:
        outer = source.parents.get(node)
        is_plain = known and isinstance(outer, ast.Assign) and case.is_plain(source, node)
        fault = _fault_of(source, outer.value) if is_plain and isinstance(outer, ast.Assign) else ""
        yield finding(f"tf-config-written{fault}", source.at(node))
    for use in code.uses("os.environ.pop", "os.environ") if known and not written else ():
        later = any(each.source is use.source and each.place.line > use.place.line for each in strategies)
        if later and _takes_away(use) and case.is_plain(use.source, use.node):
            yield finding("tf-config-written/removed", use.place)


def _fault_of(source: SourceFile, value: ast.AST) -> str:
    """Return the variant of the rule for a TF_CONFIG that suits no job of several hosts; "" for another."""
    nodes = list(ast.walk(value))
    for node in nodes:  # which grows by what stands behind names
        if isinstance(node, ast.Name):
            if re.search(rf"\b{node.id}\b(\[.*\])*(\[.*\]\s*=[^=]|\.(update|setdefault)\()", source.code):
                return ""  # it is completed later
            nodes += [inner for each in values_of(source, node) for inner in ast.walk(each) if inner not in nodes]
    tables = [
        dict(zip(map(text_of, node.keys), node.values, strict=True)) for node in nodes if isinstance(node, ast.Dict)
    ]
    roles = [each for table in tables for each in values_of(source, table.get("cluster")) if isinstance(each, ast.Dict)]
    lists = [value.elts if isinstance(value, ast.List) else [value] for role in roles for value in role.values]
    if lists and all(_LOCAL.match(text_of(each)) for addresses in lists for each in addresses):
        return "/alone"
    same = any(text_of(each.get("type")) and isinstance(value_of(each.get("index")), int) for each in tables)
    return "/same-task" if same else ""


def _takes_away(use: Use) -> bool:
    outer = use.source.parents.get(use.node)
    if isinstance(outer, ast.Subscript):
        return isinstance(outer.ctx, ast.Del) and text_of(outer.slice) == "TF_CONFIG"
    return isinstance(use.node, ast.Call) and isinstance(outer, ast.Expr) and "TF_CONFIG" in texts_of(use.node.args[:1])


def _of_host_names(case: Case) -> Iterator[Finding]:
    """Yield places where the container's own name is compared with SageMaker's, or looked for among these."""
    for use in case.code.calls(*_HOST_NAMES):
        source = use.source
        kept = [each for each in source.all_nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
        for node in [use.node, *(each for each in kept if values_of(source, each) == [use.node])]:
            outer: ast.AST | None = source.parents.get(node)
            other: ast.expr | None = None
            if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute) and outer.func.attr == "index":
                other = outer.func.value
            elif isinstance(outer, ast.Compare) and isinstance(outer.ops[0], ast.Eq):
                side = outer.left if node is outer.comparators[0] else outer.comparators[0]
                other = side if isinstance(side, ast.Subscript) and value_of(side.slice) == 0 else None
            if _HOSTS.search(text_behind(source, other)) and not tried(source, node):
                yield finding("host-name/container", source.at(node), written=use.written)


# --- GPUs by their numbers, and ports ---


def _of_gpu_numbers(case: Case) -> Iterator[Finding]:
    none = case.gpus == 0 or (case.gpus is not None and case.hides_gpus)
    beyond = not none and case.hosts > 1 and case.processes > (case.gpus or case.processes)
    for source, node in case.code.nodes(ast.Subscript):
        lists = values_of(source, node.value) if made_by(source, node.value, *_DEVICES) else []
        if not lists or any("GPU" not in texts_of(ast.walk(each)) for each in lists):
            continue
        by_number = isinstance(node.slice, ast.Constant) or made_by(source, node.slice, *_RANKS, *_LOCAL_RANKS)
        if none and by_number and case.is_plain(source, node):
            yield finding("gpu-number/none", source.at(node), written=ast.unparse(node))
        elif beyond and made_by(source, node.slice, *_RANKS):
            yield _beyond(case, source, node)
    for source, assign in case.code.nodes(ast.Assign) if beyond else ():
        match assign:
            case ast.Assign(targets=[target], value=ast.Call(func=ast.Name("str"), args=[rank])):
                chooses = re.search(r"visible_device_list$|CUDA_VISIBLE_DEVICES", ast.unparse(target))
                if chooses and made_by(source, rank, *_RANKS):
                    yield _beyond(case, source, assign)


def _beyond(case: Case, source: SourceFile, node: ast.AST) -> Finding:
    last = case.processes - 1
    return finding("gpu-number", source.at(node), written=ast.unparse(node), last=last, gpus=case.gpus)


def _of_ports(case: Case) -> Iterator[Finding]:
    assert case.job is not None
    taken = {case.job.settings.control_port: "the launcher's control channel"}
    taken |= {port: spec.name for spec in case.described.processes for port in spec.ports}
    for names, (at, name) in _LISTENS.items():
        for use in case.code.calls(*names):
            given = use.argument(name, at)
            given = given.elts[-1] if isinstance(given, ast.Tuple) and given.elts else given
            port = use.source.constant(given)
            if isinstance(port, int) and port in taken and not tried(use.source, use.node):
                yield finding("port-taken", use.place, written=use.written, port=port, by=taken[port])


# --- parameter servers ---


def _of_steps(case: Case) -> Iterator[Finding]:
    for use in case.code.calls(".fit"):
        keywords = {each.arg for each in use.node.keywords} if isinstance(use.node, ast.Call) else set()
        if made_by(use.source, use.argument("x", 0), ".DatasetCreator") and not {None, "steps_per_epoch"} & keywords:
            yield finding("steps-missing", use.place, written=use.written)


def _of_servers(case: Case) -> Iterator[Finding]:
    """Yield workers that start no server or do not stay with it, and steps that nobody waits for."""
    code = case.code
    strategies = [
        use for use in code.made(*api.SERVERS) if "compat.v1" not in use.name and case.is_plain(use.source, use.node)
    ]
    joins = [use for use in code.calls(".join") if isinstance(use.node, ast.Call) and not use.node.args]
    runs_script = case.job is not None and case.job.settings.ps_workers is PsProgram.SCRIPT
    if runs_script and strategies and not code.has(*api.SESSIONS):
        servers = list(code.calls(".distribute.Server", ".train.Server"))
        if not servers and not code.mentions(r"Server\b|start_std_server"):
            yield finding("worker-without-server", strategies[0].place, written=strategies[0].written)
        waits = code.has(*_WAITS) or any(isinstance(each.test, ast.Constant) for _, each in code.nodes(ast.While))
        others = [each for each in joins if not made_by(each.source, each.of, ".ClusterCoordinator")]
        many = (each for use in servers for each in use.source.around(use.node))  # a cluster in this process
        if servers and not others and not waits and not any(isinstance(each, ast.For | ast.ListComp) for each in many):
            yield finding("worker-without-server/not-joined", servers[0].place, written=servers[0].written)
    scheduled = next(
        (use for use in code.calls(".schedule") if made_by(use.source, use.of, ".ClusterCoordinator")), None
    )
    others = [each for each in joins if not made_by(each.source, each.of, ".Server")]
    if scheduled and not others and not code.has(".done", ".fetch", *_WAITS):
        yield finding("steps-not-awaited", scheduled.place, written=scheduled.written)


def _of_dataset_functions(case: Case) -> Iterator[Finding]:
    for use in case.code.calls(*_DATASET_FUNCTIONS):
        given = use.argument("dataset_fn", 0)
        bodies = [
            each for each in use.source.tree.body if isinstance(each, ast.FunctionDef) and isinstance(given, ast.Name)
        ]
        for inner in case.code.calls("sagemaker_tf_data.files", "sagemaker_tf_data.*.files"):
            around = [each for each in use.source.around(inner.node) if each in bodies]
            if any(getattr(each, "name", "") == getattr(given, "id", None) for each in around):
                yield finding("files-of-the-chief", inner.place, written=inner.written)


def _of_parts(case: Case) -> Iterator[Finding]:
    """Yield models whose parts are saved by parameter servers of several hosts, each to a disk of its own."""
    hosts = {spec.host for spec in case.described.processes if spec.role in (Role.PS, Role.CHIEF)}
    if len(hosts) < 2 or not case.code.has(*api.SERVERS):
        return
    for use in case.code.calls(".save", "tensorflow.saved_model.save", "tensorflow.keras.models.save_model"):
        by_function = matches(use.name, ("tensorflow.*",))
        model = use.argument("model", 0) if by_function else use.of
        text = text_behind(use.source, use.argument("filepath", 1 if by_function else 0))
        in_scope = isinstance(model, ast.Name) and is_in_scope(use.source, model)
        if in_scope and _KEPT.search(text) and not _ONE_FILE.search(text + ast.unparse(use.node)):
            yield finding("saved-in-parts", use.place, written=use.written)
