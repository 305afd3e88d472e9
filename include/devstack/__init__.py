"""The embedded stack: environment, jars, and a broker, a Spark server and Airflow as child processes.

It is for development only. In production, the settings name your cluster.
"""
