"""The rules of the house as pure functions: a module's name and its text in, findings out.

`test_architecture` applies them to every file and shows for each that it catches a planted violation.
"""
