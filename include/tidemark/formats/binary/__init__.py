"""The encodings of Avro and Protobuf: their schemas, and what reads values as the fields of a record and writes them.

Values of Python come from `tidemark.formats.json`, where a type has its meaning: the text of a UUID, a default.
"""
