"""All kinds of state, one line each: authors call the function, and the file registers the kind.

`tidemark.state` has every name that is imported here, and imports each from its file on first use.
"""

from tidemark.model.kinds.aggregate import aggregate as aggregate
from tidemark.model.kinds.count import count as count
from tidemark.model.kinds.distinct import distinct as distinct
from tidemark.model.kinds.first import first as first
from tidemark.model.kinds.latest import latest as latest
from tidemark.model.kinds.list import list as list
from tidemark.model.kinds.map import map as map
from tidemark.model.kinds.max import max as max
from tidemark.model.kinds.max_by import max_by as max_by
from tidemark.model.kinds.mean import mean as mean
from tidemark.model.kinds.min import min as min
from tidemark.model.kinds.min_by import min_by as min_by
from tidemark.model.kinds.reduce import reduce as reduce
from tidemark.model.kinds.stddev import stddev as stddev
from tidemark.model.kinds.sum import sum as sum
from tidemark.model.kinds.value import value as value
