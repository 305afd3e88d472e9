import re,pathlib,importlib,sys
sys.path.insert(0,'include'); sys.path.insert(0,'plugins'); sys.path.insert(0,'.')
bad=set(); cache={}
for base in ('include','tests','benchmarks','plugins','spark_jobs','dags','docs','.'):
    for p in (pathlib.Path(base).rglob('*') if base!='.' else pathlib.Path('.').glob('*')):
        if p.suffix not in('.py','.md','.sh') or '.venv' in p.parts or not p.is_file(): continue
        s=p.read_text(errors='ignore')
        for m in re.finditer(r"from ((?:tidemark|devstack|benchmarks)(?:\.\w+)*) import (\([^)]*\)|[^\n\"'#]*)",s):
            names=[x.strip().split(' as ')[0] for x in m[2].strip('()').replace('\\n',' ').replace('\n',' ').split(',') if x.strip()]
            for n in names:
                if not re.fullmatch(r'\w+',n): continue
                k=(m[1],n)
                if k not in cache:
                    try:
                        mod=importlib.import_module(m[1])
                        ok=hasattr(mod,n)
                        if not ok:
                            try: importlib.import_module(m[1]+'.'+n); ok=True
                            except ImportError: ok=False
                    except Exception as e: ok=str(e)[:80]
                    cache[k]=ok
                if cache[k] is not True: bad.add((str(p),*k,cache[k]))
for b in sorted(bad,key=str): print(*b)
