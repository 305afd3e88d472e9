"""What a user of Tidemark does, one module per noun: plain functions of a `Context`.

The command line, DAG tasks, the REST interface and tests call the same functions.
"""
