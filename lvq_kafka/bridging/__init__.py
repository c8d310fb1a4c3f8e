"""Bridges between a queue and the queue of another broker, over AMQP 1.0.

Rules and edges are apart. `amqp_values`, `amqp_message`, `translation`, `copied_values` and `window` know no client,
thread or clock; `amqp_link` is the connection to the other broker, and `from_broker` and `to_broker` are the loops
between both sides.
"""
