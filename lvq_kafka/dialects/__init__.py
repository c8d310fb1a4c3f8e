"""Addresses of Qpid, Artemis and Broker-J: a queue, its options, and how to read it.

Pure parsing: no client, no cluster. `address_forms` recognizes the system by the form of the text, and each system has
a module. All of them lead to one value, `Address`.
"""
