import pathlib,re,subprocess
moves=dict(l.split() for l in pathlib.Path('tools/support/1-modules.txt').read_text().split('\n') if l.strip())
pathlib.Path('tests/support').mkdir(exist_ok=True)
for a,b in moves.items():
    subprocess.run(['git','mv',f"tests/{a.replace('.','/')}.py",f"tests/{b.replace('.','/')}.py"],check=True)
init=pathlib.Path('tests/support/__init__.py')
if not init.exists(): init.write_text('"""Helpers that tests of several folders share."""\n')
files=[p for p in subprocess.run(['git','ls-files'],capture_output=True,text=True,check=True).stdout.split('\n') if p.endswith(('.py','.md','.toml','.csv')) or p in('Makefile',)]
for f in files:
    if not f.startswith(('tests','benchmarks','docs','Makefile','CONTRIBUTING','README','include','pyproject','plugins','dags')): continue
    p=pathlib.Path(f)
    if not p.exists(): continue
    s=old=p.read_text(encoding='utf-8')
    for a,b in sorted(moves.items(),key=lambda m:-len(m[0])):
        s=re.sub(rf'\btests\.{re.escape(a)}\b(?!\.py)(?=[^a-zA-Z0-9_]|$)',f'tests.{b}',s) if f.endswith('.py') or f=='Makefile' or f.endswith('.md') else s
        s=re.sub(rf"\btests/{re.escape(a.replace('.','/'))}\.py\b",f"tests/{b.replace('.','/')}.py",s)
        # from tests.pkg import mod
        ap,_,am=a.rpartition('.'); bp,_,bm=b.rpartition('.')
        if f.endswith('.py'):
            s=re.sub(rf"^(\s*from tests{'.' if ap else ''}{re.escape(ap)} import ){am}$",rf"\g<1>{bm}",s,flags=re.M).replace(f"from tests.{ap} import {bm}\n",f"from tests.{bp} import {bm}\n") if ap else s
    if s!=old: p.write_text(s,encoding='utf-8')
