"""Renames identifiers of Tidemark in the tree of the current working directory; see RULES in renames_rules.py.

Run it in the root of a checkout with its .venv:  PYTHONPATH=include .venv/bin/python tools/renames.py
Idempotent. A name that is not there is a warning. Phases: 1. modules (git mv), 2. module-level names (own scope
analysis), 3. members of classes, where the receiver's
text matches the rule, and local words, 4. literal texts, 5. ruff (import order, format) on what changed.
"""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from renames_rules import MEMBERS, MODULES, NAMES, TEXTS, WORDS  # noqa: E402

RUFF = ".venv/bin/ruff"
ROOT = Path()
BASES = ("include", "plugins", "")  # import roots
PY_DIRS = ("include", "tests", "benchmarks", "plugins", "spark_jobs", "dags")
changed: set[str] = set()
notes: list[str] = []


def warn(text: str) -> None:
    notes.append(text)
    print("WARN", text)


def tracked() -> list[str]:
    out = subprocess.run(["git", "ls-files", "-c", "-o", "--exclude-standard"], capture_output=True, text=True, check=True)
    return [f for f in sorted(set(out.stdout.split("\n"))) if f and Path(f).is_file() and not Path(f).is_symlink()]


def py_files() -> list[str]:
    return [f for f in tracked() if f.endswith(".py") and f.split("/")[0] in PY_DIRS]


def doc_files() -> list[str]:
    return [f for f in tracked() if f.endswith((".md", ".toml", ".csv", ".yaml", ".yml", ".js", ".html", ".txt")) and f != "CHANGELOG.md"]


def module_of(path: str) -> str:
    for base in ("include/", "plugins/"):
        if path.startswith(base):
            path = path[len(base):]
    name = path[:-3].replace("/", ".")
    return name.removesuffix(".__init__")


def write(path: str, text: str) -> None:
    Path(path).write_text(text, encoding="utf-8")
    changed.add(path)


def read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


# ---------------------------------------------------------------- scopes
class Scope:
    def __init__(self, node: ast.AST, parent: "Scope | None", kind: str) -> None:
        self.node, self.parent, self.kind = node, parent, kind
        self.bound: dict[str, list[tuple[str, object]]] = defaultdict(list)  # name -> how it is bound
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()

    def bind(self, name: str, how: str, node: object) -> None:
        if name in self.globals:
            top = self
            while top.parent:
                top = top.parent
            top.bound[name].append((how, node))
        elif name in self.nonlocals and self.parent:
            self.parent.bind(name, how, node)
        else:
            self.bound[name].append((how, node))


def resolve(scope: Scope, name: str) -> "Scope | None":
    first = True
    s: Scope | None = scope
    while s:
        if name in s.bound and (s.kind != "class" or first):
            return s
        if name in s.globals:
            while s.parent:
                s = s.parent
            return s
        if s.kind not in ("comp",):
            first = False
        s = s.parent
    return None


class Analysis(ast.NodeVisitor):
    """All bindings of a file and all references: (name, scope, line, byte column, token)."""

    def __init__(self, path: str, source: str) -> None:
        self.path, self.source = path, source
        self.lines = source.split("\n")
        self.tree = ast.parse(source)
        self.module = Scope(self.tree, None, "module")
        self.scope = self.module
        self.refs: list[tuple[str, Scope, int, int]] = []
        self.attributes: list[tuple[ast.Attribute, Scope]] = []
        self.calls: list[tuple[ast.Call, Scope]] = []
        self.texts: list[tuple[ast.Constant, Scope]] = []  # annotations in quotes
        self.docs: list[ast.Constant] = []
        self.consts: list[ast.Constant] = []
        self.scope_of_import: dict[int, Scope] = {}
        for s in ast.walk(self.tree):
            if isinstance(s, ast.Constant) and isinstance(s.value, str):
                self.consts.append(s)
            if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str):
                self.docs.append(s.value)
        for n in self.tree.body:
            self.visit(n)

    def name_at(self, line: int, col: int, name: str) -> int:
        """The byte column of the token `name` at or after a position in a line."""
        raw = self.lines[line - 1].encode()
        m = re.compile(rb"\b" + re.escape(name.encode()) + rb"\b").search(raw, col)
        assert m, (self.path, line, name)
        return m.start()

    def ref(self, name: str, line: int, col: int, scope: Scope | None = None) -> None:
        self.refs.append((name, scope or self.scope, line, col))

    def annotation(self, node: ast.AST | None) -> None:
        if node is None:
            return
        for n in ast.walk(node):
            if isinstance(n, ast.Constant) and isinstance(n.value, str):
                self.texts.append((n, self.scope))
        self.visit(node)

    def _function(self, n: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        a = n.args
        for d in [*a.defaults, *[d for d in a.kw_defaults if d]]:
            self.visit(d)
        every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])]
        for arg in every:
            self.annotation(arg.annotation)
        if not isinstance(n, ast.Lambda):
            for d in n.decorator_list:
                self.visit(d)
            self.annotation(n.returns)
            self.scope.bind(n.name, "def", n)
            word = 4 if isinstance(n, ast.FunctionDef) else 10
            self.ref(n.name, n.lineno, self.name_at(n.lineno, n.col_offset + word - 0, n.name))
        inner = Scope(n, self.scope, "function")
        for x in ast.walk(n):
            pass
        outer, self.scope = self.scope, inner
        self._declarations(n)
        for arg in every:
            inner.bind(arg.arg, "arg", arg)
            self.ref(arg.arg, arg.lineno, arg.col_offset)
        body = [n.body] if isinstance(n, ast.Lambda) else n.body
        for b in body:
            self.visit(b)
        self.scope = outer

    def _declarations(self, n: ast.AST) -> None:
        stack = list(getattr(n, "body", [])) if isinstance(getattr(n, "body", None), list) else []
        while stack:
            x = stack.pop()
            if isinstance(x, ast.Global):
                self.scope.globals.update(x.names)
            elif isinstance(x, ast.Nonlocal):
                self.scope.nonlocals.update(x.names)
            elif isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                continue
            stack.extend(c for c in ast.iter_child_nodes(x) if isinstance(c, ast.stmt) or hasattr(c, "body"))

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function  # noqa: N815

    def visit_ClassDef(self, n: ast.ClassDef) -> None:
        for d in [*n.decorator_list, *n.bases, *[k.value for k in n.keywords]]:
            self.visit(d)
        self.scope.bind(n.name, "class", n)
        self.ref(n.name, n.lineno, self.name_at(n.lineno, n.col_offset + 5, n.name))
        outer, self.scope = self.scope, Scope(n, self.scope, "class")
        for b in n.body:
            self.visit(b)
        self.scope = outer

    def _comp(self, n: ast.AST) -> None:
        outer = self.scope
        gens = n.generators  # type: ignore[attr-defined]
        self.visit(gens[0].iter)
        self.scope = Scope(n, outer, "comp")
        for i, g in enumerate(gens):
            self.visit(g.target)
            if i:
                self.visit(g.iter)
            for c in g.ifs:
                self.visit(c)
        if isinstance(n, ast.DictComp):
            self.visit(n.key)
            self.visit(n.value)
        else:
            self.visit(n.elt)  # type: ignore[attr-defined]
        self.scope = outer

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comp  # noqa: N815

    def visit_NamedExpr(self, n: ast.NamedExpr) -> None:
        s = self.scope
        while s.kind == "comp" and s.parent:
            s = s.parent
        s.bind(n.target.id, "assign", n.target)
        self.ref(n.target.id, n.target.lineno, n.target.col_offset)
        self.visit(n.value)

    def visit_Name(self, n: ast.Name) -> None:
        if isinstance(n.ctx, (ast.Store, ast.Del)):
            self.scope.bind(n.id, "assign", n)
        self.ref(n.id, n.lineno, n.col_offset)

    def visit_AnnAssign(self, n: ast.AnnAssign) -> None:
        self.visit(n.target)
        self.annotation(n.annotation)
        if n.value:
            self.visit(n.value)

    def visit_ExceptHandler(self, n: ast.ExceptHandler) -> None:
        if n.name:
            self.scope.bind(n.name, "assign", n)
            end = n.type.end_col_offset if n.type else n.col_offset
            line = n.type.end_lineno if n.type else n.lineno
            self.ref(n.name, line, self.name_at(line, end, n.name))
        self.generic_visit(n)

    def visit_MatchAs(self, n: ast.MatchAs) -> None:
        if n.pattern:
            self.visit(n.pattern)
        if n.name:
            self.scope.bind(n.name, "assign", n)
            raw = self.lines[n.end_lineno - 1].encode()[: n.end_col_offset]
            self.ref(n.name, n.end_lineno, len(raw) - len(n.name.encode()))

    def visit_MatchStar(self, n: ast.MatchStar) -> None:
        if n.name:
            self.scope.bind(n.name, "assign", n)

    def visit_MatchMapping(self, n: ast.MatchMapping) -> None:
        if n.rest:
            self.scope.bind(n.rest, "assign", n)
        self.generic_visit(n)

    def _import(self, n: ast.Import | ast.ImportFrom) -> None:
        self.scope_of_import[id(n)] = self.scope
        for a in n.names:
            if isinstance(n, ast.Import):
                if a.asname:
                    self.scope.bind(a.asname, "module", a.name)
                else:
                    self.scope.bind(a.name.split(".")[0], "module", a.name.split(".")[0])
            else:
                source = n.module or ""
                if n.level:
                    here = module_of(self.path).split(".")
                    if not self.path.endswith("__init__.py"):
                        here = here[:-1]
                    here = here[: len(here) - n.level + 1]
                    source = ".".join([*here, *([n.module] if n.module else [])])
                self.scope.bind(a.asname or a.name, "from", (source, a.name, a))

    visit_Import = visit_ImportFrom = _import  # noqa: N815

    def visit_Attribute(self, n: ast.Attribute) -> None:
        self.attributes.append((n, self.scope))
        self.generic_visit(n)

    def visit_Call(self, n: ast.Call) -> None:
        self.calls.append((n, self.scope))
        f = n.func
        if (isinstance(f, ast.Name) and f.id in ("cast", "TypeVar")) or (isinstance(f, ast.Attribute) and f.attr == "cast"):
            for x in ast.walk(n):
                if isinstance(x, ast.Constant) and isinstance(x.value, str):
                    self.texts.append((x, self.scope))
        self.generic_visit(n)

    # what an expression names
    def origin(self, node: ast.AST, scope: Scope, modules: set[str]) -> str | None:
        """The module that an expression names, if any."""
        if isinstance(node, ast.Name):
            s = resolve(scope, node.id)
            for how, what in s.bound[node.id] if s else []:
                if how == "module":
                    return what if what in modules or any(m.startswith(what + ".") for m in modules) else None  # type: ignore[return-value]
                if how == "from":
                    full = f"{what[0]}.{what[1]}"  # type: ignore[index]
                    if full in modules:
                        return full
            return None
        if isinstance(node, ast.Attribute):
            left = self.origin(node.value, scope, modules)
            if left is not None and (f"{left}.{node.attr}" in modules or any(m.startswith(f"{left}.{node.attr}.") for m in modules)):
                return f"{left}.{node.attr}"
        return None


def edit(source: str, edits: dict[tuple[int, int], tuple[str, str]]) -> str:
    lines = [line.encode() for line in source.split("\n")]
    for (line, col), (old, new) in sorted(edits.items(), reverse=True):
        raw = lines[line - 1]
        if raw[col : col + len(old.encode())] != old.encode():  # Python 3.11 misplaces names in some f-strings
            found = [m.start() for m in re.finditer(rb"(?<![\w.])" + re.escape(old.encode()) + rb"\b", raw)]
            if len(found) != 1:
                warn(f"CONFLICT by hand: {old} -> {new} in line {line}: {lines[line - 1].decode()}")
                continue
            col = found[0]
        lines[line - 1] = raw[:col] + new.encode() + raw[col + len(old.encode()) :]
    return "\n".join(line.decode() for line in lines)


# ---------------------------------------------------------------- phase 1: modules
def move_modules() -> None:
    done = {}
    for old, new in MODULES.items():
        source = next((Path(b, old.replace(".", "/") + ".py") for b in BASES if Path(b, old.replace(".", "/") + ".py").exists()), None)
        if source is None:
            target = any(Path(b, new.replace(".", "/") + ".py").exists() for b in BASES)
            if not target:
                warn(f"module {old} is not there")
            else:
                done[old] = new  # moved before: fix what newly imports it
            continue
        target_path = Path(str(source)[: -len(old.replace(".", "/") + ".py")] + new.replace(".", "/") + ".py")
        if target_path.exists():
            warn(f"module {old}: {new} exists already")
            continue
        subprocess.run(["git", "mv", str(source), str(target_path)], check=True)
        changed.add(str(target_path))
        done[old] = new
        print("MOVED", old, "->", new)
    if not done:
        return
    for f in [*py_files(), *doc_files()]:
        text = before = read(f)
        for old, new in done.items():
            po, no_ = old.rpartition(".")[0::2]
            pn, nn = new.rpartition(".")[0::2]
            text = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, text)
            text = re.sub(rf"(?<![\w]){re.escape(old.replace('.', '/'))}\.py\b", new.replace(".", "/") + ".py", text)
            if f.endswith(".py") and re.search(rf"^\s*from {re.escape(po)} import .*\b{no_}\b", text, flags=re.M):
                text = _module_import(f, text, (po, no_), (pn, nn))
        if text != before:
            write(f, text)
            print("  imports of moved modules in", f)


def _module_import(path: str, text: str, old: tuple[str, str], new: tuple[str, str]) -> str:
    """`from package import module` of a moved module; its uses in the file too."""
    a = Analysis(path, text)
    edits: dict[tuple[int, int], tuple[str, str]] = {}
    for n in ast.walk(a.tree):
        if isinstance(n, ast.ImportFrom) and n.module == old[0]:
            for x in n.names:
                if x.name == old[1]:
                    if old[0] != new[0] and len(n.names) > 1:
                        warn(f"{path}:{n.lineno}: split the import of {old[1]} by hand")
                        return text
                    edits[x.lineno, x.col_offset] = (old[1], new[1])
                    if old[0] != new[0]:
                        edits[n.lineno, a.name_at(n.lineno, n.col_offset + 5, old[0])] = (old[0], new[0])
                    if x.asname is None:
                        s = a.scope_of_import[id(n)]
                        for name, scope, line, col in a.refs:
                            if name == old[1] and resolve(scope, name) is s:
                                edits[line, col] = (old[1], new[1])
    return edit(text, edits)


# ---------------------------------------------------------------- phase 2: module-level names
def rename_names() -> None:
    files = py_files()
    modules = {module_of(f) for f in files}
    path_of = {module_of(f): f for f in files}
    analyses: dict[str, Analysis] = {}

    def analysis(f: str) -> Analysis:
        if f not in analyses:
            analyses[f] = Analysis(f, read(f))
        return analyses[f]

    for f in files:
        analysis(f)
    wanted: dict[tuple[str, str], str] = {}
    for (module, old), new in NAMES.items():
        f = path_of.get(module)
        if f is None:
            warn(f"{module}:{old}: no such module")
            continue
        bound = analysis(f).module.bound
        if old not in bound:
            # renamed before: what newly imports the old name is mended too
            if new in bound:
                wanted[module, old] = new
            else:
                warn(f"{module}:{old}: no such name")
            continue
        if new in bound:
            warn(f"{module}:{old}: {new} is taken there")
            continue
        wanted[module, old] = new
    # re-exports
    grew = True
    while grew:
        grew = False
        for f, a in analyses.items():
            for name, hows in a.module.bound.items():
                for how, what in hows:
                    if how == "from" and what[2].asname is None and (what[0], what[1]) in wanted and (module_of(f), name) not in wanted:
                        wanted[module_of(f), name] = wanted[what[0], what[1]]
                        grew = True
    olds = {old for _, old in wanted}
    words = re.compile(rf"\b({'|'.join(sorted(olds)) or '-'})\b")
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for f, a in analyses.items():
        if not words.search(a.source):
            continue
        edits: dict[tuple[int, int], tuple[str, str]] = {}
        here = module_of(f)
        renamed_scopes: dict[tuple[int, str], tuple[Scope, str]] = {}
        mine: dict[str, tuple[str, str]] = {}  # old -> key, for texts
        # imports
        for n in ast.walk(a.tree):
            if isinstance(n, ast.ImportFrom):
                s = a.scope_of_import.get(id(n))
                if s is None:
                    continue
                for x in n.names:
                    for how, what in s.bound.get(x.asname or x.name, []):
                        if how == "from" and what[2] is x and (what[0], x.name) in wanted:
                            new = wanted[what[0], x.name]
                            if new == x.asname:
                                warn(f"{f}:{n.lineno}: {x.name} as {x.asname}")
                            edits[x.lineno, x.col_offset] = (x.name, new)
                            mine[x.name] = (what[0], x.name)
                            counts[what[0], x.name] += 1
                            if x.asname is None:
                                renamed_scopes[id(s), x.name] = (s, new)
        for (module, old), new in wanted.items():
            if module == here and old in a.module.bound and any(h != "from" for h, _ in a.module.bound[old]):
                renamed_scopes[id(a.module), old] = (a.module, new)
                mine[old] = (module, old)
        targets: dict[tuple[int, str], str] = {}
        for (_, old), (s, new) in renamed_scopes.items():
            if targets.setdefault((id(s), new), old) != old:
                warn(f"CONFLICT {f}: {old} and {targets[id(s), new]} both become {new}")
        # references
        for name, scope, line, col in a.refs:
            s = resolve(scope, name)
            if s is None or (id(s), name) not in renamed_scopes:
                continue
            new = renamed_scopes[id(s), name][1]
            edits[line, col] = (name, new)
            t: Scope | None = scope
            while t is not None:
                if new in t.bound and not (t.kind == "class" and t is not scope):
                    warn(f"CONFLICT {f}:{line}: {name} -> {new}: {new} is bound in a {t.kind} here")
                if t is s:
                    break
                t = t.parent
        for (_, old), (s, new) in renamed_scopes.items():
            for name, scope, line, _ in a.refs:
                if name == new and resolve(scope, name) is None and hasattr(builtins, new):
                    warn(f"CONFLICT {f}:{line}: {old} -> {new} hides the builtin that is used here")
        # module.name
        for node, scope in a.attributes:
            if node.attr in olds:
                m = a.origin(node.value, scope, modules)
                if m and (m, node.attr) in wanted:
                    edits[node.end_lineno, node.end_col_offset - len(node.attr)] = (node.attr, wanted[m, node.attr])
                    mine[node.attr] = (m, node.attr)
                    counts[m, node.attr] += 1
        # patch.object(module, "name")
        for call, scope in a.calls:
            if len(call.args) >= 2 and isinstance(call.args[1], ast.Constant) and call.args[1].value in olds:
                m = a.origin(call.args[0], scope, modules)
                k = call.args[1]
                if m and (m, k.value) in wanted:
                    edits[k.lineno, a.name_at(k.lineno, k.col_offset, k.value)] = (k.value, wanted[m, k.value])
                    counts[m, k.value] += 1
        # annotations in quotes
        for const, scope in a.texts:
            for old in set(re.findall(r"(?<![\w.])\w+", const.value)) & olds:
                    s = resolve(scope, old)
                    if s and (id(s), old) in renamed_scopes:
                        raw = a.lines[const.lineno - 1].encode()[const.col_offset : const.end_col_offset if const.end_lineno == const.lineno else None]
                        for m2 in re.finditer(rb"(?<![\w.])" + old.encode() + rb"\b", raw):
                            edits[const.lineno, const.col_offset + m2.start()] = (old, renamed_scopes[id(s), old][1])
        # __all__
        for n in a.tree.body:
            if isinstance(n, (ast.Assign, ast.AugAssign)) and isinstance(getattr(n, "targets", [getattr(n, "target", None)])[0], ast.Name):
                if getattr(n, "targets", [getattr(n, "target", None)])[0].id == "__all__":
                    for x in ast.walk(n.value):
                        if isinstance(x, ast.Constant) and (here, x.value) in wanted:
                            edits[x.lineno, x.col_offset + 1] = (x.value, wanted[here, x.value])
        text = edit(a.source, edits) if edits else a.source
        text = rename_in_texts(text, wanted, mine)
        if text != a.source:
            ast.parse(text)
            write(f, text)
            seen = sorted({f"{o}->{n}" for o, n in edits.values()})
            print("NAMES", f, ", ".join(seen))
    for f in doc_files():
        text = before = read(f)
        text = dotted(text, wanted, short_names(wanted))
        for (_, old), new in wanted.items():
            if is_class(old) and old in text:
                text = re.sub(rf"`{old}(?=[`.])", f"`{new}", text)
        if text != before:
            write(f, text)
            print("DOCS", f)


def is_class(name: str) -> bool:
    return name.lstrip("_")[:1].isupper() and name.upper() != name


_SHORT = re.compile(r"`(\w+)\.(\w+)(?=[`(])")


def dotted(text: str, wanted: dict[tuple[str, str], str], short: dict[tuple[str, str], str]) -> str:
    """`tidemark.module.name` anywhere, and module.name in backticks."""

    def full(m: re.Match[str]) -> str:
        parts = m[0].split(".")
        for n in range(len(parts) - 1, 1, -1):
            new = wanted.get((".".join(parts[:n]), parts[n]))
            if new:
                return ".".join([*parts[:n], new, *parts[n + 1 :]])
        return m[0]

    text = re.sub(r"(?<![\w.])tidemark(?:\.\w+)+", full, text)
    return _SHORT.sub(lambda m: f"`{m[1]}.{short[m[1], m[2]]}" if (m[1], m[2]) in short else m[0], text)


def short_names(wanted: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    return {(m.rpartition(".")[2], old): new for (m, old), new in wanted.items()}


def rename_in_texts(text: str, wanted: dict[tuple[str, str], str], mine: dict[str, tuple[str, str]]) -> str:
    """Dotted names in strings and comments; names in backticks where the file defines or imports them."""
    text = dotted(text, wanted, short_names(wanted))
    for old, key in mine.items():
        new = wanted[key]
        text = re.sub(rf"`{old}(?=[`(])", f"`{new}", text)
        if is_class(old):
            text = re.sub(rf"`{old}\.(?=\w)", f"`{new}.", text)
    return text


# ---------------------------------------------------------------- phase 3: members of classes
def rename_members() -> None:
    """A member is renamed in its class, and as `receiver.member` where the receiver's text matches the rule.

    mypy, run afterwards, finds every use that a rule has missed.
    """
    files = py_files()
    path_of = {module_of(f): f for f in files}
    for (module, cls, old), (new, receivers, only) in MEMBERS.items():
        f = path_of.get(module)
        node = None if f is None else next((n for n in ast.parse(read(f)).body if isinstance(n, ast.ClassDef) and n.name == cls), None)
        if f is None or node is None:
            warn(f"{module}:{cls}.{old}: no such class")
            continue
        if not _has(node, old) and not _has(node, new):
            warn(f"{module}:{cls}.{old}: no such member")
            continue
        if _has(node, old) and _has(node, new):
            warn(f"{module}:{cls}.{old}: {new} is taken there")
            continue
        for path in files:
            source = read(path)
            if not re.search(rf"\b{old}\b", source):
                continue
            if path != f and not re.search(only, path):
                continue
            a = Analysis(path, source)
            edits: dict[tuple[int, int], tuple[str, str]] = {}
            for n, _ in a.attributes:
                if n.attr == old and re.fullmatch(receivers, ast.unparse(n.value)):
                    edits[n.end_lineno, n.end_col_offset - len(old)] = (old, new)
            for call, _ in a.calls:
                name = ast.unparse(call.func)
                if name == cls or (name == "replace" and call.args and re.fullmatch(receivers, ast.unparse(call.args[0]))):
                    for k in call.keywords:
                        if k.arg == old:
                            edits[k.lineno, k.col_offset] = (old, new)
                if len(call.args) > 1 and ast.unparse(call.args[0]) == cls and isinstance(call.args[1], ast.Constant) and call.args[1].value == old:
                    edits[call.args[1].lineno, call.args[1].col_offset + 1] = (old, new)
            doc = None
            if path == f:
                for c in a.tree.body:
                    if isinstance(c, ast.ClassDef) and c.name == cls:
                        doc = ast.get_docstring(c, clean=False)
                        for b in c.body:
                            if isinstance(b, (ast.FunctionDef, ast.AsyncFunctionDef)) and b.name == old:
                                edits[b.lineno, a.name_at(b.lineno, b.col_offset + 4, old)] = (old, new)
                            elif isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name) and b.target.id == old:
                                edits[b.target.lineno, b.target.col_offset] = (old, new)
                        for x in ast.walk(c):
                            if isinstance(x, ast.Attribute) and x.attr == old and isinstance(x.value, ast.Name) and x.value.id in ("self", "cls"):
                                edits[x.end_lineno, x.end_col_offset - len(old)] = (old, new)
            text = edit(source, edits)
            if doc and re.search(rf"^\s+{old}:", doc, flags=re.M):
                text = text.replace(doc, re.sub(rf"^(\s+){old}:", rf"\g<1>{new}:", doc, flags=re.M), 1)
            text = re.sub(rf"\b{cls}\.{old}\b", f"{cls}.{new}", text)
            if text != source:
                ast.parse(text)
                write(path, text)
                print("MEMBER", path, f"{cls}.{old}->{new}")
        for path in doc_files():
            text = read(path)
            made = re.sub(rf"\b{cls}\.{old}\b", f"{cls}.{new}", text)
            if made != text:
                write(path, made)
                print("DOCS", path, f"{cls}.{old}->{new}")


def _has(node: ast.ClassDef, name: str) -> bool:
    for b in node.body:
        if isinstance(b, (ast.FunctionDef, ast.AsyncFunctionDef)) and b.name == name:
            return True
        if isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name) and b.target.id == name:
            return True
    return False


def rename_words() -> None:
    """Local names: a whole word as a token, and in backticks, in one file."""
    import io
    import tokenize

    for path, old, new in WORDS:
        if not Path(path).exists():
            warn(f"word: no {path}")
            continue
        source = read(path)
        edits: dict[tuple[int, int], tuple[str, str]] = {}
        lines = source.split("\n")
        for t in tokenize.generate_tokens(io.StringIO(source).readline):
            if t.type == tokenize.NAME and t.string == old:
                line, col = t.start
                edits[line, len(lines[line - 1][:col].encode())] = (old, new)
        for name, _, line, col in Analysis(path, source).refs:  # Python 3.11 has no tokens inside f-strings
            if name == old:
                edits[line, col] = (old, new)
        text = re.sub(rf"^(\s+){old}:(?= [a-z`])", rf"\g<1>{new}:", edit(source, edits), flags=re.M)
        text = re.sub(rf"`{old}`", f"`{new}`", text)
        if text != source:
            ast.parse(text)
            write(path, text)
            print("WORD", path, f"{old}->{new}")


# ---------------------------------------------------------------- phase 4: texts
def replace_texts() -> None:
    for path, old, new in TEXTS:
        if not Path(path).exists():
            warn(f"text: no {path}")
            continue
        text = read(path)
        if old in text:
            write(path, text.replace(old, new))
            print("TEXT", path, repr(old[:60]))
        elif new not in text:
            warn(f"text: {path} has neither {old[:70]!r} nor its replacement")


def main() -> None:
    move_modules()
    rename_names()
    rename_members()
    rename_words()
    replace_texts()
    python = sorted(f for f in changed if f.endswith(".py") and Path(f).exists())
    if python:
        subprocess.run([RUFF, "check", "-q", "--select", "I", "--fix", *python], check=False)
        subprocess.run([RUFF, "format", "-q", *python], check=False)
        replace_texts()
    print(f"{len(changed)} files changed, {len(notes)} warnings")
    for n in notes:
        if n.startswith("CONFLICT"):
            print(n)


if __name__ == "__main__":
    main()
