"""TupleData and COPY rows become Arrow columns, a column at a time: no Python object per value."""
