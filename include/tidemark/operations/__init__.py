"""The operations that you perform with Tidemark, one module per noun: plain functions of a `Context`.

The command line, DAG tasks, the REST interface and tests call the same functions.
"""
