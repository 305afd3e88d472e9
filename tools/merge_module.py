"""merge_module.py SRC DST [before|after]: moves the body of module SRC into DST and rewrites importers."""
import ast, pathlib, re, subprocess, sys
ROOT=pathlib.Path('.')
def path_of(m):
    for base in ('include','plugins','.'):
        p=ROOT/base/(m.replace('.','/')+'.py')
        if p.exists(): return p
    raise SystemExit(f'no {m}')
def parts(p):
    s=p.read_text(); t=ast.parse(s); lines=s.split('\n')
    doc=ast.get_docstring(t,clean=False)
    body=t.body[:]
    docend=0
    if doc is not None: docend=body[0].end_lineno; body=body[1:]
    imports=[];guard=[];first=None;rest_start=None
    removed=set()
    for n in body:
        if isinstance(n,(ast.Import,ast.ImportFrom)):
            imports.append('\n'.join(lines[n.lineno-1:n.end_lineno])); removed|=set(range(n.lineno,n.end_lineno+1))
        elif isinstance(n,ast.If) and ast.unparse(n.test)=='TYPE_CHECKING' and all(isinstance(x,(ast.Import,ast.ImportFrom)) for x in n.body):
            guard+=['\n'.join(lines[x.lineno-1:x.end_lineno]) for x in n.body]; removed|=set(range(n.lineno,n.end_lineno+1))
    rest='\n'.join(l for i,l in enumerate(lines,1) if i>docend and i not in removed).strip('\n')
    head='\n'.join(lines[:docend])
    return head,imports,guard,rest,t
def tops(t):
    d=set()
    for n in t.body:
        if isinstance(n,(ast.FunctionDef,ast.ClassDef,ast.AsyncFunctionDef)): d.add(n.name)
        elif isinstance(n,ast.Assign):
            for x in n.targets:
                for y in ast.walk(x):
                    if isinstance(y,ast.Name): d.add(y.id)
        elif isinstance(n,ast.AnnAssign): d.add(n.target.id)
    return d
def run(src,dst,where):
    ps,pd=path_of(src),path_of(dst)
    hs,is_,gs,rs,ts=parts(ps); hd,id_,gd,rd,td=parts(pd)
    clash=(tops(ts)&tops(td))-{'__all__'}
    def seg(p,t,c):
        for n in t.body:
            if isinstance(n,ast.Assign) and getattr(n.targets[0],'id','')==c: return ast.get_source_segment(p.read_text(),n)
    same={c for c in clash if seg(ps,ts,c) and seg(ps,ts,c)==seg(pd,td,c)}
    for c in same:
        victim=seg(ps,ts,c)
        if where=='before': rd=rd.replace(victim+'\n','',1)
        else: rs=rs.replace(victim+'\n','',1)
    clash-=same
    if clash: 
        # private clash: rename in src
        for c in clash:
            new=c+'_of_'+src.split('.')[-1] if False else None
        print('CLASH',src,dst,sorted(clash)); 
        if '--force' not in sys.argv: raise SystemExit(1)
    def drop(imps,m):
        out=[]
        for i in imps:
            n=ast.parse(i.strip()).body[0]
            if isinstance(n,ast.ImportFrom) and n.module==m and not n.level:
                aliased=[a for a in n.names if a.asname and a.asname!=a.name]
                if aliased: print('ALIAS',m,[(a.name,a.asname) for a in aliased])
                continue
            out.append(i)
        return out
    # lazy imports inside functions of one another
    selfimp=re.compile(rf'^[ \t]+from {re.escape(src)} import (\([^)]*\)|[^\n]*)\n',re.M); selfimp2=re.compile(rf'^[ \t]+from {re.escape(dst)} import (\([^)]*\)|[^\n]*)\n',re.M)
    rd=selfimp.sub('',rd+'\n').rstrip('\n'); rs=selfimp2.sub('',rs+'\n').rstrip('\n')
    fut=[]
    imps=drop(id_,src)+drop(is_,dst)
    guards=drop([g.strip() for g in gd],src)+drop([g.strip() for g in gs],dst)
    # merge __all__
    alls=[ast.literal_eval(n.value) for t in (ts,td) for n in t.body if isinstance(n,ast.Assign) and getattr(n.targets[0],'id','')=='__all__']
    allre=re.compile(r'^__all__ = \[[^\]]*\]\n*',re.M)
    rs=allre.sub('',rs+'\n').strip('\n'); 
    if alls and allre.search(rd+'\n'):
        rd=allre.sub('',rd+'\n').strip('\n'); rd='__all__ = [\n'+''.join(f'    "{x}",\n' for x in sorted({x for a in alls for x in a}))+']\n\n'+rd
    body=(rs+'\n\n\n'+rd) if where=='before' else (rd+'\n\n\n'+rs)
    m=re.match(r'(__all__ = \[[^\]]*\]\n\n)',rd)
    if where=='before' and m: body=m[1]+rs+'\n\n\n'+rd[len(m[1]):]
    g='\nif TYPE_CHECKING:\n'+'\n'.join('    '+x.replace('\n','\n    ') if not x.startswith('    ') else x for x in guards)+'\n' if guards else ''
    pd.write_text(hd+'\n\n'+'\n'.join(imps)+'\n'+g+'\n'+body+'\n')
    subprocess.run(['git','rm','-q','--cached',str(ps)]); ps.unlink()
    sp,sn=src.rsplit('.',1); dp,dn=dst.rsplit('.',1)
    spath=str(ps).replace('include/','',1) if str(ps).startswith('include/') else str(ps)
    dpath=str(pd).replace('include/','',1) if str(pd).startswith('include/') else str(pd)
    for base in ('include','tests','plugins','benchmarks','spark_jobs','dags','docs','.github','.'):
        for p in (pathlib.Path(base).rglob('*') if base!='.' else pathlib.Path('.').glob('*')):
            if not p.is_file() or p.suffix not in('.py','.md','.toml','.yaml','.csv','.yml'): continue
            s=o=p.read_text(errors='replace')
            s=re.sub(rf'(?<![\w.]){re.escape(src)}(?![\w])',dst,s)
            # from package import module
            if p.suffix=='.py' and re.search(rf'from {re.escape(sp)} import [^\n]*\b{sn}\b|from {re.escape(sp)} import \([^)]*\b{sn}\b',s): print('MODULE IMPORT',p,sn)
            s=s.replace(spath,dpath)
            short=src.replace('tidemark.',''); dshort=dst.replace('tidemark.','')
            s=re.sub(rf'`{re.escape(short)}(?=[.`])',f'`{dshort}',s)
            if s!=o: p.write_text(s)
    print(f'{src} -> {dst}: {len(pd.read_text().splitlines())} lines')
a=[x for x in sys.argv[1:] if not x.startswith('--')]
run(a[0],a[1],a[2] if len(a)>2 else 'before')
