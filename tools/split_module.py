"""split_module.py SRC NEW NAME...: moves top-level definitions (with the string or comment attached) into a new module."""
import ast, pathlib, re, sys
src,new,*names=sys.argv[1:]
ps=pathlib.Path('include')/(src.replace('.','/')+'.py'); pn=pathlib.Path('include')/(new.replace('.','/')+'.py')
s=ps.read_text(); t=ast.parse(s); lines=s.split('\n')
body=t.body; take=set(); imps=[]
def nm(n):
    if isinstance(n,(ast.FunctionDef,ast.ClassDef)): return n.name
    if isinstance(n,ast.Assign): return getattr(n.targets[0],'id',None)
    if isinstance(n,ast.AnnAssign): return n.target.id
for i,n in enumerate(body):
    if isinstance(n,(ast.Import,ast.ImportFrom)): imps.append('\n'.join(lines[n.lineno-1:n.end_lineno]))
    if nm(n) in names:
        start=min([n.lineno]+[d.lineno for d in getattr(n,'decorator_list',[])]); end=n.end_lineno
        if i+1<len(body) and isinstance(body[i+1],ast.Expr) and isinstance(getattr(body[i+1],'value',None),ast.Constant): end=body[i+1].end_lineno
        while start>1 and lines[start-2].startswith('#'): start-=1
        take|=set(range(start,end+1))
moved='\n'.join(lines[i-1] for i in sorted(take))
# separate functions/classes by blank lines
moved=re.sub(r'\n(?=(?:def |class |@))','\n\n\n',moved)
moved=re.sub(r'(@[^\n]*)\n\n\n(def|class)',r'\1\n\2',moved)
pn.write_text('"""New."""\n\n'+'\n'.join(imps)+'\n\n'+moved+'\n')
rest='\n'.join(l for i,l in enumerate(lines,1) if i not in take)
ps.write_text(rest)
# importers
pat=re.compile(rf'^([ \t]*)from {re.escape(src)} import (\([^)]*\)|[^\n]*)$',re.M)
def sub(m):
    ind=m[1]; items=[x.strip() for x in m[2].strip('()').replace('\n',' ').split(',') if x.strip()]
    a=[x for x in items if x.split(' as ')[0] in names]; b=[x for x in items if x not in a]
    out=[]
    if b: out.append(f'{ind}from {src} import {", ".join(b)}')
    if a: out.append(f'{ind}from {new} import {", ".join(a)}')
    return '\n'.join(out)
for base in ('include','tests','plugins','benchmarks','spark_jobs'):
    for p in pathlib.Path(base).rglob('*.py'):
        o=p.read_text(); q=pat.sub(sub,o)
        if q!=o: p.write_text(q)
# the rest may use moved names
used=[n for n in names if re.search(rf'\b{n}\b',rest)]
if used:
    i=rest.index('\nfrom ') if '\nfrom ' in rest else rest.index('\nimport ')
    ps.write_text(rest[:i]+f'\nfrom {new} import {", ".join(used)}'+rest[i:])
