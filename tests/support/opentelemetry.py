"""An OpenTelemetry collector for tests: a real HTTP server that exporters send to."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Collector:
    """Records the gauges and spans of incoming POST requests."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        self.gauges: dict[str, tuple[dict[str, str], float]] = {}
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/metrics":
                    collector.take(ExportMetricsServiceRequest.FromString(body))
                else:
                    asked = ExportTraceServiceRequest.FromString(body)
                    scopes = (scope for r in asked.resource_spans for scope in r.scope_spans)
                    collector.spans += [span for scope in scopes for span in scope.spans]
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Logs nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def take(self, asked: Any) -> None:
        """Records gauges by name."""
        for metric in (m for r in asked.resource_metrics for scope in r.scope_metrics for m in scope.metrics):
            for found in metric.gauge.data_points:
                tags = {tag.key: tag.value.string_value for tag in found.attributes}
                self.gauges[metric.name] = (tags, found.as_double or float(found.as_int))

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
