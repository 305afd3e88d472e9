"""Renames variables of tests by exact name token (and inside f-strings): house, shelf and others that were private words."""
import io, pathlib, re, tokenize
BY_IMPORT = [('BankPipeline', {'house': 'bank'}), ('RetentionPipeline', {'shelf': 'retained'}), ('TransferPipeline', {'market': 'transfer_pipeline'})]
BY_FILE = {
    'tests/process/test_failures.py': {'house': 'pipeline_of'},
    'tests/process/test_deliveries.py': {'house': 'delivering'},
    'tests/process/test_refused_records.py': {'house': 'refusing'},
    'tests/process/test_refusing_topics.py': {'house': 'refusing'},
    'tests/kafka/test_secured.py': {'house': 'secured'},
    'tests/airflow/human_in_the_loop.py': {'somebody': 'human_answers'},
    'tests/airflow/test_backfill.py': {'somebody': 'human_answers'},
    'tests/airflow/test_retention_dag.py': {'somebody': 'human_answers'},
}
for p in sorted(pathlib.Path('tests').rglob('*.py')):
    s = p.read_text(encoding='utf-8')
    todo = dict(BY_FILE.get(str(p), {}))
    for mark, names in BY_IMPORT:
        if mark in s or (str(p.parent) == 'tests/unit/coordinator' and 'house' in names) or (str(p.parent) == 'tests/retention' and 'shelf' in names):
            todo.update({a: b for a, b in names.items() if a not in todo})
    if not todo: continue
    lines = s.splitlines(keepends=True); edits = []; seen = set()
    for t in tokenize.generate_tokens(io.StringIO(s).readline):
        if t.type == tokenize.NAME:
            seen.add(t.string)
            if t.string in todo: edits.append((t.start, len(t.string), todo[t.string]))
        elif t.type == tokenize.STRING and re.match(r'[rR]?[fF]', t.string) and t.start[0] == t.end[0]:
            for brace in re.finditer(r'\{[^{}]*', t.string):
                for m in re.finditer(r'(?<![\w.\'"])(' + '|'.join(todo) + r')\b(?=[.,\[\]\(\)!:]|$)', brace[0]):
                    edits.append(((t.start[0], t.start[1] + brace.start() + m.start()), len(m[0]), todo[m[0]]))
    if not edits: continue
    clash = {b for a, b in todo.items() if a in seen and b in seen}
    if clash: print('CLASH', p, clash)
    for (row, col), size, new in sorted(edits, reverse=True):
        line = lines[row - 1]; lines[row - 1] = line[:col] + new + line[col + size:]
    p.write_text(''.join(lines), encoding='utf-8')
for p in pathlib.Path('tests/copies').glob('*.py'):
    s = p.read_text(); new = re.sub(r'(?<!copies)\.transfer_pipeline\b', '.source', s)
    if new != s: p.write_text(new)
