"""APIs of other systems on queues of this library: programs change an import line.

`qpid_messaging` stands in for Qpid's ``qpid.messaging``.
"""
