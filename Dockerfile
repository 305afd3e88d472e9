# The one image of docker-compose.yaml: Airflow, Spark and Tidemark, from the same lock and the same checked jars as a checkout.
FROM python:3.11.14-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends bash curl openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/tidemark
# What set-up reads comes first, so that a change of a pipeline does not fetch a gigabyte again.
COPY pyproject.toml requirements.lock requirements.image README.md LICENSE ./
COPY include/tidemark include/tidemark
COPY include/devstack include/devstack
RUN python include/devstack/bootstrap.py --s3 --image && rm -rf /root/.cache
COPY dags dags
COPY plugins plugins
COPY spark_jobs spark_jobs
COPY include/pipelines include/pipelines

# The JVM asks for the user's name. Named volumes take their owner from the folders that they are mounted on.
RUN useradd --uid 50000 --gid 0 --home-dir /opt/airflow --no-create-home tidemark \
    && mkdir -p /opt/airflow/logs home \
    && chown -R tidemark:0 /opt/airflow home

ENV AIRFLOW_HOME=/opt/airflow \
    GX_ANALYTICS_ENABLED=false \
    PATH=/opt/tidemark/.venv/bin:$PATH \
    PYSPARK_PYTHON=/opt/tidemark/.venv/bin/python \
    PYTHONPATH=/opt/tidemark/include \
    SPARK_HOME=/opt/tidemark/.venv/lib/python3.11/site-packages/pyspark \
    TIDEMARK_HOME=/opt/tidemark/home \
    TIDEMARK_ROOT=/opt/tidemark
USER tidemark
