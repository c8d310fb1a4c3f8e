"""Current values over HTTP, for clients without Python: `app` returns an ASGI application.

Rules and edges are apart. `http_requests`, `parameters`, `media_types`, `entity_tags`, `event_stream`, `line_cache`,
`http_answers`, `problems`, `host_names`, `bearer_tokens`, `queue_rights` and `trusted_proxies` know no socket, thread
or clock, and for writes `write_requests`, `repeated_writes` and `write_room`. `operations` says what a route takes and
answers, and `openapi` makes the document of it. `routes` lists all routes; `value_routes`, `list_routes` and
`event_routes` answer them from views, `metric_routes` from what is measured, and `web_files` from the files in `web/`.
`write_routes` writes by `queue_writer`, the producer of a queue, and `writes_under_way` keeps what is not decided;
`long_answers` bounds those that wait or stream; `http_peer` is the client, and `queue_app` the application.
"""

from lvq_kafka.serve.queue_app import QueueApp, app

__all__ = ["QueueApp", "app"]
