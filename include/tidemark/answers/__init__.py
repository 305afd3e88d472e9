"""The answers of Tidemark: frozen dataclasses that REST, the pages, `--json` and asset events share.

Field names are part of the interface: docs/rest.md lists those of REST. `body_of` of
`tidemark.model.checkpoint.codec` turns an answer into JSON values. Where the meaning is Flink's, so is the name.
"""
