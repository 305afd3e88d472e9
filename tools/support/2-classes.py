"""Renames helper classes by exact word, in the module that defines them and in all that import them from it."""
import ast, pathlib, re
rules = {}
for l in pathlib.Path('tools/support/2-classes.txt').read_text().split('\n'):
    if l.strip():
        m, a, b = l.split(); rules.setdefault('tests.' + m, {})[a] = b
for p in [*pathlib.Path('tests').rglob('*.py'), *pathlib.Path('benchmarks').rglob('*.py')]:
    s = p.read_text(encoding='utf-8')
    own = str(p.with_suffix('')).replace('/', '.')
    todo = {}
    tree = ast.parse(s)
    defined = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    for a, b in rules.get(own, {}).items():
        if a in defined: todo[a] = b
    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom) and n.module in rules:
            for al in n.names:
                if al.name in rules[n.module]:
                    b = rules[n.module][al.name]
                    assert todo.get(al.name, b) == b, (p, al.name, todo)
                    todo[al.name] = b
    if todo:
        new = re.sub(r'(?<![\w.])(' + '|'.join(todo) + r')\b', lambda m: todo[m[1]], s)
        if new != s: p.write_text(new, encoding='utf-8')
