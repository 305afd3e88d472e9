"""The rules of the architecture as pure functions that take a module's name and text and return findings.

`test_architecture` applies each rule to every file it covers, and proves that the rule catches a planted violation.
"""
