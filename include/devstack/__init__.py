"""The embedded stack: environment, jars, and a broker, a Spark server and Airflow as child processes.

Not for production, and not needed there: a cluster is reached by settings alone.
"""
